import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balanced_aggregation.rewards import Outcome
from balanced_aggregation.rewards.mathematics import comparison
from balanced_aggregation.rewards.mathematics.extraction import answer_part, final_boxed
from balanced_aggregation.rewards.mathematics.judge import LONGEST_ANSWER, judge_math

EXAMPLES = int(os.environ.get("BALAGG_FUZZ_EXAMPLES", 80))
"""Random texts per property."""


def judge(answer, gold, tolerance=None):
    return judge_math(rf"Thus $\boxed{{{answer}}}$.", gold, tolerance)


def cases(table):
    """Gold and answers of each line, which are separated by the sign ¦."""
    rows = [[part.strip() for part in line.split("¦")] for line in table.strip().splitlines()]
    return [pytest.param(gold, answer, id=f"{gold} ¦ {answer}") for gold, *answers in rows for answer in answers]


EQUAL = r"""
5 ¦ 5. ¦ 5.0 ¦ +5 ¦ \text{5} ¦ $5$ ¦ \(5\) ¦ x=5 ¦ x = 5 \text{ cm}
5 ¦ 5 \text{ apples} ¦ \text{5 hours} ¦ (5) ¦ \fbox{5}
025 ¦ 25 ¦ 025
25 ¦ 025
10,\!080 ¦ 10080 ¦ 10,080 ¦ 10{,}080 ¦ 10\,080
10080 ¦ 10,080 ¦ 10{,}080 ¦ 10,\!080
\$32,\!348 ¦ 32348 ¦ \$32,348 ¦ 32{,}348 \text{ dollars}
\$18.90 ¦ 18.9 ¦ \$18.90
5.4 \text{ cents} ¦ 5.4 ¦ \$0.054
90^\circ ¦ 90 ¦ 90^{\circ} ¦ 90 \text{ degrees} ¦ 90°
90 ¦ 90^\circ
\frac{270}7\text{ degrees} ¦ \frac{270}{7} ¦ \dfrac{270}{7}^\circ
864 \mbox{ inches}^2 ¦ 864 ¦ 864 \text{ in}^2 ¦ 864 \text{ square inches}
1 \text{ km} ¦ 1000 \text{ m} ¦ 1\mathrm{~km} ¦ 1 km
3 \text{ m/s} ¦ 3 \mathrm{~m} / \mathrm{s} ¦ 3\ \mathrm{m}\cdot\mathrm{s}^{-1}
240 \text{ yuan} ¦ 240 ¦ 240 yuan
32.8\% ¦ 32.8 ¦ 0.328 ¦ \frac{41}{125} ¦ 32.8 \text{ percent}
10 ¦ 10\%
4.5e33 ¦ 4.5 \times 10^{33} ¦ 4.5\cdot10^{33} \mathrm{~J} ¦ 4.5e33
4.5e33 ¦ 4.5\mathrm{e}33 ¦ 4.52\times10^{33}\ \text{erg/s} ¦ L = 4.5e33
1e-5 ¦ 10^{-5} ¦ 0.00001 ¦ 1.00 \times 10^{-5}
1e-3 ¦ 0.001 ¦ \frac{1}{1000}
4.4e7 ¦ 44281397 ¦ 44{,}281{,}397
780 ¦ 7.8 \times 10^2 ¦ 7.8e2
1,000, 2,000 ¦ 2000, 1000 ¦ 2{,}000 \text{ and } 1{,}000
90 ¦ The angle is [ 90 ]. ¦ \text{The answer is } 90^\circ ¦ \text{The angle is 90}
1/3 ¦ \frac13 ¦ 0.333333 ¦ \frac{1}{3} \approx 0.333 ¦ x = \frac{1}{3} = 0.333
30.52 ¦ \frac{1587}{52}
\frac{1}{2} ¦ The answer is \frac{1}{2}
\frac{1}{2} ¦ 0.5 ¦ .5 ¦ 1/2 ¦ \dfrac12 ¦ \frac{2}{4} ¦ 2^{-1}
1\frac{4}{5} ¦ \frac{9}{5} ¦ 1.8 ¦ 1 4/5
.0000672 ¦ 6.72 \times 10^{-5}
5:8 ¦ \frac{5}{8}
-1./3 ¦ -\frac{1}{3}
2^{1000} ¦ 4^{500}
\frac{1}{2004!} ¦ \frac{2005}{2005!}
10^{30} ¦ 1000000000000000000000000000000
\frac{\sqrt{3}}{3} ¦ \frac{1}{\sqrt3} ¦ 3^{-1/2}
e^{2} ¦ \exp(2)
6-5i ¦ -5i+6
(a+5)(b+2) ¦ ab+2a+5b+10
\cot x ¦ \frac{\cos x}{\sin x}
\binom{2n}{n} ¦ \frac{(2n)!}{(n!)^2}
np.arcsin(10/13) ¦ \arcsin\frac{10}{13}
k_{\mathrm{B}} T ¦ k_B T
x_{0}^{2} ¦ x_0^2
1,-2 ¦ -2, 1 ¦ 1 \text{ and } -2 ¦ \{-2, 1\}
1,-2 ¦ x = 1 \text{ or } x = -2 ¦ x = 1, -2 ¦ 1, -2, 1
$69$,$84$ ¦ 84, 69 ¦ 69 and 84
x=1,x=2 ¦ 1,2 ¦ x=2,x=1
k = 45, n = 2 ¦ n = 2, k = 45 ¦ 45, 2
1 \pm \sqrt{19} ¦ 1-\sqrt{19}, 1+\sqrt{19}
$(1,8,19), (2,7,13)$ ¦ (2,7,13), (1,8,19)
(2,1),(-2,1) ¦ (\pm 2, 1)
\left( 3, \frac{\pi}{2} \right) ¦ (3, \pi/2) ¦ (r, \theta) = \left(3, \tfrac{\pi}{2}\right)
(3,4] ¦ 3 < x \le 4 ¦ \left(3, 4\right]
x \in [-2,7] ¦ [-2,7] ¦ -2 \leq x \leq 7
20<P<30 ¦ (20,30)
\{x | -1 < x < 1\} ¦ (-1,1)
k \geqslant 2 ¦ [2,\infty) ¦ 2 \le k ¦ k >= 2
(-\infty, 2) \cup (3, \infty) ¦ (3,\infty)\cup(-\infty,2)
x \ne 3 ¦ (-\infty,3)\cup(3,\infty)
x<1 ¦ -x > -1
f(x)=\frac{1}{x} ¦ \frac1x ¦ f(t) = \frac1t
m_{\max }=n^{2}-n-1 ¦ n^2-n-1 ¦ m = n^2-n-1
y = 2x + 3 ¦ 2x - y + 3 = 0 ¦ 2x+3
5x - 7y + 11z + 4 = 0 ¦ -5x+7y-11z-4=0
\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix} ¦ \begin{bmatrix} -\frac13 \\ \frac23\end{bmatrix}
\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix} ¦ \frac13\begin{pmatrix}-1\\2\end{pmatrix}
52_8 ¦ 52_{8}
\text{Evelyn} ¦ Evelyn ¦ \text{evelyn} ¦ \textbf{Evelyn.}
\text{(C)} ¦ C ¦ (C) ¦ \text{C} ¦ \textbf{(C)}
x = k\pi ¦ x = k\pi, k \in \mathbb{Z}
3 ¦ \log_2(8) = 3
9 ¦ 9 \pmod{11}
4.5e33 ¦ 4.5 \times 10^{33} ¦ 4.5e33 ¦ 4.5e{33} ¦ 4.5E33
2e^3 ¦ 40.171074 ¦ 2\cdot e^3 ¦ 2\exp(3) ¦ 2e^{3}
3e8 ¦ 300000000 ¦ 3\cdot 10^8
\infty ¦ +\infty ¦ \infty
0.5 ¦ 50\% ¦ \frac12
\frac12 ¦ 50\%
0.05 ¦ 5\%
5 ¦ 5\%
50\% ¦ 0.5 ¦ 50 ¦ \frac12
30.52 ¦ \frac{1587}{52}
\frac{2}{3} ¦ 0.666666 ¦ 0.666667
\pi ¦ 3.14159 ¦ 3.14159265
5000000 ¦ 5 \text{ million} ¦ 5 million
5 \text{ million} ¦ 5000000 ¦ 5 million
60 \text{ mph} ¦ 60 ¦ 60 \text{ miles per hour}
£5 ¦ 5 ¦ 5 \text{ pounds sterling}
12:30 ¦ 12:30
5:8 ¦ 5/8
\text{Evelyn} ¦ Evelyn
7 ¦ 7 \text{ square units} ¦ 7 \text{ cubic units} ¦ 7 \text{ students}
5 ¦ x=5 ¦ x_1=5 ¦ \angle ABC = 5 ¦ f(2)=5 ¦ AB = 5 ¦ \text{Answer} = 5 ¦ \text{Answer: } 5 ¦ Answer: 5
5 ¦ \text{Area} = 5 ¦ \theta = 5 ¦ |AB| = 5
5 ¦ \text{The final answer is } 5 ¦ \text{Total area}: 5 ¦ x' = 5 ¦ m\angle ABC = 5 ¦ \vec{a} = 5 ¦ x_{\max} = 5
5 ¦ \overline{AB} = 5
5 ¦ x = \sqrt{25} = 5 ¦ \sqrt{25} = 5 ¦ 10/2 = 25/5 = 5 ¦ f(5) = 2 + 3 = 5 ¦ x = 5 \approx 5.0 ¦ x \approx 5
5 ¦ P(X) = 5 ¦ 5 = x ¦ A = 5
\frac{1}{30} ¦ x = \frac{1}{30} \approx 0.03 ¦ \frac{1}{30} \approx 0.033
\frac{1}{30} ¦ x = \frac{2}{60} = \frac{1}{30} \approx 0.0333
x=5 ¦ 2x=10 ¦ x-5=0 ¦ 5 = x ¦ x = 2+3 = 5
y=2x+3 ¦ y-2x=3 ¦ y = 3+2x ¦ 2y = 4x+6 ¦ 2x+3 = y
MR=SRMC ¦ SRMC ¦ MR = SRMC
2 \pmod 7 ¦ 2 \pmod{7} ¦ 2 ¦ x \equiv 2 \pmod 7
5 ¦ 5, \text{where } n \text{ is an integer} ¦ 5 \text{ for } n \in \mathbb{Z} ¦ 5 \text{ for all } n \ge 1
5 ¦ 5, n \in \mathbb{Z} ¦ 5 \text{ for all integers } n
x = k\pi ¦ x = k\pi, \text{ where } k \text{ is an integer} ¦ x = k\pi \quad (k \in \mathbb{Z})
x = k\pi ¦ k\pi, \text{ for any integer } k
a^2+2ab+b^2 ¦ S = (a+b)^2 = a^2+2ab+b^2
V_{1}:V_{2}=11:21 ¦ 11:21
\frac{NO}{BO}=\frac{1}{\sqrt{6}} ¦ \frac{1}{\sqrt{6}}
f(x)=1 ¦ f(x) = 1 \text{ for all } x \in \mathbb{Q}_{>0}
5 ¦ 5 = 5.0 \text{ cm} ¦ x \in \{5\}
[0,1] ¦ x \in [0,1] ¦ 0 \le x \le 1
x<1 ¦ x<1 ¦ (-\infty,1)
3e8 ¦ 3 \times 10^{8} \text{ m/s} ¦ c = 3e8 = 3 \times 10^8 ¦ c \approx 3\times 10^8 \mathrm{~m/s}
5 ¦ 5 \mathrm{~cm\ s^{-1}} ¦ 5 \mathrm{g/cm^3} ¦ 5 \mathrm{~kg \cdot m/s^2} ¦ 5 \mathrm{~\mu m}
5 ¦ 5\ \mathrm{\Omega} ¦ 5 \mathrm{~k\Omega} ¦ 5 \text{ kg}\cdot\text{m}^2
5 ¦ \approx 5 ¦ =5 ¦ \therefore 5 ¦ \therefore x=5 ¦ \color{red}{5} ¦ \textcolor{red}{5} ¦ \mathbf{x=5} ¦ \large 5
5 ¦ \Large{5} ¦ {\large 5} ¦ P(X=1)=5 ¦ \color{blue}5
5 \mathrm{~kg \cdot m/s^2} ¦ 5 \mathrm{~kg\ m\ s^{-2}}
5 \mathrm{~\mu m} ¦ 0.005 \mathrm{~mm}
5 \mathrm{~cm\ s^{-1}} ¦ 0.05 \mathrm{~m/s}
A ¦ \textbf{(A)} 5 ¦ (A) 5 ¦ \textbf{(A) } 5 ¦ (A)\ 5 ¦ \text{(A) } 5 ¦ \textbf{(A)}~\frac{1}{2}
\begin{pmatrix} 1 \\ 2 \end{pmatrix} ¦ \begin{pmatrix} 1 \\[4pt] 2 \end{pmatrix}
2\sqrt{3} ¦ 2\sqrt{3} \approx 3.46 ¦ x = 2\sqrt{3} \approx 3.464 ¦ \sqrt{12}
2\sqrt{3} ¦ d = 2\sqrt{3} \text{ cm} \approx 3.46 \text{ cm}
5 ¦ A = \frac{1}{2} \cdot 2 \cdot 5 = 5 \text{ cm}^2 ¦ x = 5 \text{ cm} ¦ n=5 \text{ apples} ¦ \$5 ¦ 5\,\text{cm}
5 ¦ \text{Area} = 5 \text{ cm}^2
15 ¦ \frac{3}{20} \cdot 100 = 15
90^\circ ¦ x = 90^\circ ¦ \angle ABC = 90^\circ ¦ \theta = 90 ¦ x = 45^\circ + 45^\circ = 90^\circ
5.4 \text{ cents} ¦ x = 5.4 \text{ cents} ¦ x = 5.4
"""

NOT_EQUAL = r"""
2 ¦ 1 or 2 or 3 ¦ 1 \text{ or } 2 ¦ 2, 3 ¦ 2,3 ¦ (2,3) ¦ \{1,2,3\}
2 ¦ x=2 \text{ or } x=3 ¦ 2; 3 ¦ 2 \pm 1 ¦ 2 3 ¦ 2 \text{ or maybe } 3 ¦ \pm 2
2 ¦ x \ge 2 ¦ [2, \infty) ¦ x \in \mathbb{R}
2 ¦ 2 \le x \le 2 ¦ x > 1 ¦ \mathbb{R} ¦ \{2\} \cup \{3\} ¦ 2 \mid 3 ¦ \text{2 or 3}
5 ¦ x ¦ n ¦ 5x ¦ 5n ¦ 5m ¦ 5c ¦ 5d ¦ 5t
5 ¦ x+5 ¦ f(5) ¦ \text{anything} ¦ ? ¦ -5 ¦ 5! ¦ \emptyset ¦ \text{The answer is not } 5
5 ¦ 5 = 5 ¦ 4 = 5 ¦ 5 = 4
5 ¦ 5 = x = 6 ¦ 5 \ne 6 ¦ 5 \approx 6 ¦ 2(3) ¦ (2)(3) ¦ \frac{4}{2}(3) ¦ 2x+1=5
6 ¦ x = 5 = 6 ¦ 5 \approx 6
6 ¦ \int_0^6 1 dx ¦ \sum_{k=1}^{6} 1 ¦ \gcd(12,18) ¦ 13 \bmod 7 ¦ \max(5, 6) ¦ 1,\ldots,6
7 ¦ 3(4) ¦ 3\frac{4}{1}
-5 ¦ \pm 5 ¦ 5
x=5 ¦ y=5 ¦ x=5, x=6 ¦ x \le 5
x=1,x=2 ¦ x=1 ¦ 1
k = 45, n = 2 ¦ 2, 45 ¦ k = 2, n = 45
1 \pm \sqrt{19} ¦ 1 + \sqrt{19}
1 + \sqrt{19} ¦ 1 \pm \sqrt{19}
\frac{1}{2004!} ¦ \frac{1}{2006!} ¦ 0
2^{1000} ¦ 2^{1000}+1
10^{30} ¦ 10^{30}+1
\sqrt2 ¦ 1.41 ¦ \sqrt{2}+10^{-90} ¦ -\sqrt2
\pi x ¦ \pi x + \frac{1}{2004!}
1 ¦ 1-10^{-20} ¦ 0.99999999 ¦ 1.0000001 ¦ 1, 1
\frac{1}{3} ¦ 0.333 ¦ 0.33 ¦ 33\%
\pi ¦ 3.14 ¦ \frac{22}{7}
3.14 ¦ \pi
0.333 ¦ \frac13
1.25 ¦ 1.2512
326.5 ¦ 326.51
0.15 ¦ \frac{2}{13} ¦ 0.154
0.0000001 ¦ 0.0000002 ¦ 0
2\times 10^{-10} ¦ 2\times 10^{-11} ¦ 3 \times 10^{-10}
7 \times 10^{35} ¦ 7.1 \times 10^{35}
4.5e33 ¦ 4.6e33 ¦ 4.5e34 ¦ -4.5e33 ¦ 4.5 ¦ 33 ¦ 4.5e33, 4.6e33
1e-8 ¦ 2e-8 ¦ 1e-9 ¦ 0 ¦ -1e-8
10\% ¦ 1 ¦ 0.01
5 \text{ cm} ¦ 5 \text{ m} ¦ 5 \text{ cm}^2 ¦ 5 \text{ kg}
5 \text{ minutes} ¦ 5 \text{ hours}
\$5 ¦ 5 \text{ cents}
\frac{r}{R} ¦ 1
x ¦ X ¦ x' ¦ x^2 ¦ \sqrt{x^2} ¦ |x| ¦ f(x)
\lfloor\sqrt{n-1}\rfloor ¦ \lfloor n/2 \rfloor
66_8 ¦ 54
54 ¦ 66_8
2516_8 ¦ 2516_9 ¦ 2516
(0,1) ¦ [0,1] ¦ (0,1] ¦ (1,0)
1,2 ¦ 1,2,3 ¦ 1,1 ¦ 1 ¦ (2,1)
1,1,2 ¦ 1,2
1,2,3 ¦ 1,\ldots,3
(-\infty,2)\cup(3,\infty) ¦ (-\infty,2) ¦ (-\infty,3)\cup(2,\infty)
k \ge 2 ¦ k > 2 ¦ k \le 2 ¦ n \ge 2
2x+y<3 ¦ 2x+y>3 ¦ -2x-y<-3
f(x)=2x ¦ f(x)=f(x) ¦ g(x) = 2x ¦ f(x) = x
f(n)=n ¦ f(n)=n, f(n)=n^2
y=2x+3 ¦ 0=0 ¦ y=y ¦ y=2x+4 ¦ 2x+3=0
\begin{pmatrix}1&2\\3&4\end{pmatrix} ¦ \begin{pmatrix}1&2\\3&5\end{pmatrix} ¦ \begin{pmatrix}1\\2\\3\\4\end{pmatrix}
\text{Evelyn} ¦ \text{Navin} ¦ \text{Evelyn or Navin} ¦ E
\text{even} ¦ \text{even or odd}
ab cd ¦ ab/cd ¦ abc
AB ¦ ab ¦ AB! ¦ \text{AB}
5 ¦ The answer is 5 or 6 ¦ The answer is not 5 ¦ The answer is 6, not 5
\text{(C)} ¦ \text{(B)} ¦ \text{(A) or (C)} ¦ A, B, C, D ¦ c
3:1 ¦ 1:3
12:00 ¦ 1:00
i ¦ 1 ¦ -i
\infty ¦ -\infty
0 ¦ \frac{0}{0} ¦ \frac{1}{10^{30000}}
4.5e33 ¦ 148.5e ¦ 148.5 e
3e8 ¦ 24e ¦ 8 \cdot 3e
1e-8 ¦ e-8
5e0 ¦ \ln 1 ¦ 0
24e ¦ 3e8
2000 ¦ 2e^{3} ¦ 2e^3
1 ¦ \lfloor 3e8 \rfloor - \lfloor 3e8 \rfloor + 1
\infty ¦ 2\infty ¦ \infty+5 ¦ 5\cdot\infty
0 ¦ 5/\infty ¦ \frac{5}{\infty}
I ¦ i
i ¦ I
0.5 ¦ 0.5\%
5 ¦ 500\%
7 ¦ 700\%
\frac12 ¦ \frac12\%
12.25 ¦ \frac{12259}{1000}
0.3333 ¦ 0.33339 ¦ \frac{33339}{100000}
\frac{2}{3} ¦ 0.666667666 ¦ 0.6666675 ¦ 0.666665
\pi ¦ 3.141594 ¦ 3.141591
30.53 ¦ \frac{1587}{52}
5 ¦ 5 million ¦ 5 \text{ million} ¦ 5 \text{ billion} ¦ 5\text{ thousand} ¦ 5 \text{ hundred} ¦ 5 \text{ dozen}
5 ¦ 5 \text{ squared} ¦ 5 \text{ cubed}
5 ¦ 5 \text{ factorial} ¦ 5 \text{ halves} ¦ 5 \text{ thirds} ¦ 5 \text{ thousandths} ¦ 5 \text{ pi}
5 ¦ 5 \text{ choose } ¦ 5 \text{ times} ¦ 5 \text{ point five}
5 ¦ 5 \text{ base seven} ¦ 5 \text{ half} ¦ 5 \text{ maybe six} ¦ 5 \text{ versus six} ¦ 5 \text{ else six}
5 ¦ 5 \text{ ou six} ¦ 5 oder sechs ¦ 5 \text{ eighths} ¦ 5 \text{ twelfths}
5 ¦ 5 \text{ if you like this answer} ¦ 5 \text{ apples}^2 ¦ 5 \text{ шесть} ¦ 5 \text{ not}
60 \text{ km/h} ¦ 60 \text{ mph}
60 \text{ degrees} ¦ 60 \text{ radians} ¦ 60 \text{ rad}
\$5 ¦ 5 \text{ euros} ¦ €5 ¦ 5 \text{ pounds} ¦ £5
12:30 ¦ 2:5 ¦ \frac{2}{5} ¦ 0.4
288 ¦ 2^{2019}-1000\lfloor 2^{2019}/1000\rfloor
\text{Evelyn} ¦ \text{Evelyn 不是} ¦ \text{Evelyn ❌} ¦ 不 Evelyn ¦ \text{Evelyn и}
5 ¦ -x=5 ¦ x-y=5 ¦ x+y=5 ¦ -x+y=5 ¦ 2x=5 ¦ x^2=5 ¦ xy=5 ¦ |x|=5 ¦ \sin x=5 ¦ \sqrt{x}=5 ¦ \frac{x}{y}=5 ¦ m+n=5
x=5 ¦ -x=5 ¦ x-y=5 ¦ x+y=5 ¦ 2+3=5 ¦ \sqrt{25}=4+1=5 ¦ x^2=5
y=2x+3 ¦ x+y=2x+3 ¦ -y=2x+3 ¦ (y-2x-3)(x-5)=0 ¦ x(y-2x-3)=0 ¦ (y-2x-3)^2=0 ¦ |y|=2x+3
MR=SRMC ¦ A+B=SRMC ¦ -MR=SRMC ¦ A=SRMC
5 ¦ \max(6)=5 ¦ \lim_{x\to0} 6=5 ¦ \sum 6=5 ¦ |6|=5 ¦ \ln(2)=5 ¦ \emptyset = 5 ¦ \gcd(6)=5 ¦ \min(6,7)=5 ¦ \int 6=5
5 ¦ 6\bmod 7=5
5 ¦ 6 = \sqrt{25} = 5 ¦ 1=2=5 ¦ x=6=1+4=5 ¦ 5=6=5 ¦ x = 6 = 5 ¦ x=5=6 ¦ \text{No}=5 ¦ x=y=6=5 ¦ 5=5=5 ¦ x=\text{No}=5
C ¦ A=B=C ¦ A=C ¦ (A)=(C) ¦ A: C ¦ x=C ¦ \text{not } C
\text{Yes} ¦ No = Yes ¦ \text{No} = \text{Yes} ¦ \text{not}: \text{Yes} ¦ x = \text{Yes}
B ¦ (A) = (B) ¦ (A): B ¦ A: B ¦ A B ¦ A = B
\text{even} ¦ odd: even ¦ \text{odd}: even ¦ odd = even
5 ¦ x = 5 \approx 6 ¦ x = \sqrt{25} \approx 6 ¦ 5 \approx 5.0 \approx 6 ¦ x \approx 5 \approx 6 ¦ x = 5 \approx y
5 ¦ 5 \approx \text{six}
5 ¦ \text{not}: 5 ¦ \text{not } x = 5 ¦ \neg x=5 ¦ \text{any number but } x=5 ¦ \text{6 or 5 or} = 5 ¦ (A): 5
5 ¦ \text{wrong}: 5 ¦ not: 5
7 ¦ \text{6 or 5 or} = 7 ¦ \text{The wrong answer is } 7 ¦ The incorrect answer is 7
7 ¦ \text{The answer of others is } 7 ¦ \text{No solution} = 7
2 \pmod 7 ¦ 2 \pmod 5 ¦ 2 \pmod{70}
2 ¦ 2 \pmod{\text{not } 5} ¦ x = 3 \pmod 2
5 ¦ 5, \text{where } 6 ¦ 5 \text{ where } 6 ¦ 5 \text{ for } 6 ¦ 5, \text{ for some, else } 6
5 ¦ 5 \text{ for one, otherwise } 6 ¦ 5 \text{ if } x > 1, 6 \text{ else}
5 ¦ 5 \text{ where the answer is } 6 ¦ 5 \text{ for all but } 6 ¦ 5, \text{ for } x = 6 ¦ 5 \text{ unless it is } 6
5 ¦ 5, \text{ not } 6 ¦ 5, \text{where } x=6
5 ¦ 5 \text{, where we do not mean } 5 ¦ 5, \text{for example} ¦ 5, \text{ except } 6 ¦ 5 \text{ but } 6
5 ¦ 5, \text{where } x \text{ is wrong}
5 ¦ x=5=y=6 ¦ 5=x=6 ¦ 6=x=5 ¦ x \approx 6 = 5 ¦ 6 \approx x = 5 ¦ \text{Answer}=6=5 ¦ \text{Answer}: 6 = 5
5 ¦ \text{answer: not } 5 ¦ x = \text{not } 5
5 ¦ x = -5 ¦ \lnot 5 ¦ \cancel{5} ¦ \sout{5} ¦ \xcancel{5}6 ¦ \phantom{6}5 5 ¦ 5\vphantom{6}6 ¦ \overline{5}
5 ¦ \bar{5} ¦ \not 5 ¦ \hspace{5}6
5 ¦ 5 \text{ or more} ¦ \text{at least } 5 ¦ \text{about } 5 ¦ 5 \text{ minus one} ¦ 5^{\text{not}} ¦ 5_6 ¦ 5_{10}
5 ¦ 5\% 6 ¦ 5 6 ¦ 5 | 6 ¦ 5/6 ¦ 5:6
x=5 ¦ x=6=5 ¦ y=5=x ¦ x>5 ¦ x=5, y=6 ¦ x \ne 5 ¦ z: 5 ¦ x=5=6 ¦ x = 5 \text{ or } 6 ¦ x = y = 5
3e8 ¦ 3e8e ¦ 3e8 + 1 ¦ e ¦ 3 \cdot e^8 ¦ 3 \cdot 10^{8e} ¦ (3)(e8) ¦ 2e8
0.05 ¦ 0.05\% ¦ 500\%
-0.5 ¦ -0.5\% ¦ 50\% 
1 ¦ 100 \text{ percent} ¦ 0.01\%
y=2x+3 ¦ y=2x+3=5 ¦ y = 5 = 2x+3 ¦ y=2x+3, x=5 ¦ 2x+3=0 ¦ y \ge 2x+3 ¦ f(y)=2x+3
AB ¦ A=B ¦ A,B ¦ A \cdot B \cdot 1.1
1 ¦ I ¦ \text{I}
2 \pi ¦ 2 \text{ pi squared} ¦ 2\pi \text{ million}
10 ¦ 10 \text{ to } 20 ¦ 10-20 ¦ 10\text{-}20 ¦ 10 \ldots ¦ 1 0
100 ¦ 1e2e0 ¦ 100\text{ hundred} ¦ 10^2 \text{ cubed}
\text{Monday} ¦ \text{not Monday} ¦ \text{Monday?} ¦ Monday or Tuesday ¦ \text{Monday} = \text{Tuesday}
\text{Monday} ¦ Tuesday: Monday ¦ \text{Monday} \ne x ¦ \neg \text{Monday}
3.14159 ¦ 3.14160 ¦ 3.1415
\frac{1}{7} ¦ 0.142858 ¦ 0.142856 ¦ 0.14285
(1,2) ¦ A=(1,2)=(3,4) ¦ (3,4)=(1,2) ¦ A = (2,1) ¦ (1,2,3)
\{1,2\} ¦ S = \{1,2\} = \{3\} ¦ \text{not } \{1,2\} ¦ \neg\{1,2\}
[0,1] ¦ x \notin [0,1] ¦ x \in [0,1) ¦ \text{not } [0,1] ¦ \mathbb{R} \setminus [0,1] ¦ -x \in [0,1] ¦ x^2 \in [0,1]
x<1 ¦ |x|<1 ¦ -x<1 ¦ x<1<2 ¦ x<1, x>5 ¦ x^2<1
A ¦ A or B ¦ (B) 5 ¦ B) A ¦ \textbf{(B)} A ¦ 5 (A) ¦ (A) B) ¦ (A), (B) ¦ A 5 ¦ (A) (B) ¦ (A) \text{ or } (B)
A ¦ A) B) ¦ (A) \text{ not } ¦ (A) \text{ is wrong}
5 ¦ \approx 6 ¦ = 6 ¦ \therefore 6 ¦ \color{red}{6} ¦ \textcolor{red}{6} ¦ \color{5}{6} ¦ \color{red}5 6 ¦ = = 5
5 ¦ \ne 5 ¦ > 5 ¦ \because 5
5 \mathrm{~g/cm^3} ¦ 5 \mathrm{~g/cm^2} ¦ 5 \mathrm{~kg/cm^3}
5 \mathrm{~\mu m} ¦ 5 \mathrm{~m} ¦ 5 \mathrm{~nm}
5 \Omega ¦ 5 \mathrm{~V} ¦ 5 \mathrm{~k\Omega}
5 ¦ 5 \Omega x ¦ 5\omega ¦ P(X=1)=6 ¦ P(X=5)=6 ¦ P(5)
5 ¦ |5| = 5 = 5.00001 ¦ 5 \equiv 6 ¦ 5 \sim 6 ¦ 5 \to 6 ¦ 6 \to 5 ¦ x \to 5 \to 6 ¦ 6 \Rightarrow 5
5 ¦ 5 \Rightarrow 6 ¦ 5 \iff 6 ¦ 5 \leftarrow 6 ¦ \frac{5}{1} \neq 5
5 ¦ (5, ) ¦ 5,, 6 ¦ 5\\6 ¦ 5 \\ 6 ¦ 5 & 6 ¦ 5 \qquad 6 ¦ 5 \newline 6 ¦ 5 \text{ } 6 ¦ 5 ~ 6 ¦ 5 \; 6
5 ¦ 5\quad\text{or}\quad 6 ¦ 5 \lor 6 ¦ 5 \vee 6 ¦ 5 \land 6 ¦ 5 \cup 6 ¦ 5 \cap 6
5 ¦ \begin{cases} 5 \\ 6 \end{cases} ¦ \begin{pmatrix} 5 & 6 \end{pmatrix} ¦ \begin{array}{c} 5 \\ 6 \end{array}
5 ¦ \{5, 6\} ¦ 5 \text{ if } x>0 ¦ \substack{5 \\ 6} ¦ \stackrel{5}{6} ¦ \underbrace{5}_{6} ¦ \overset{6}{5}
5 ¦ 5^{6} ¦ \underline{5}6
5 ¦ \boxed{6} 5 ¦ \fbox{6}, 5 ¦ 5 \text{ no, } 6 ¦ 5. 6 ¦ 5.6 ¦ 5' ¦ 5^\circ 6' ¦ 5 \text{ ft } 6 \text{ in}
5 ¦ 5 \text{ hours } 6 \text{ min} ¦ 5\text{h}6 ¦ 5 \text{ or so} ¦ \sim 5 6
5 ¦ \text{five or } 5 ¦ \text{A: } 5 ¦ \text{No answer: } 5 ¦ \text{No } 5 ¦ \text{Answer of the trap: } 5
5 ¦ \text{minimum difference root}: 6 ¦ \text{number of answers} = 6
12 ¦ 12 \text{ squared meters squared} ¦ 12 \text{ m}^{-1}2 ¦ 12 \text{ gross} 2 ¦ 12 \text{ per cent} 5
\frac{1}{2} ¦ 1 \text{ over } 2.1 ¦ \frac{1}{2}\text{ of } 3 ¦ 1/2 \text{ dozen} ¦ \frac12\frac12 ¦ \frac{1}{2}!
\frac{1}{2} ¦ \frac{1}{2}' ¦ 1\div 2 \div 1.1
x^2+1 ¦ x^2+1=0 ¦ x^2+1 = x^2+2 ¦ x^2 + 1, x=3 ¦ f(x)=x^2+1=5 ¦ x^2 \pm 1 ¦ y^2+1 ¦ x^2+1 \text{ squared} ¦ x^2 = 1
x^2+1 ¦ x^2+1 \le 5
2\sqrt{3} ¦ 2\sqrt{3} = 3.5 ¦ 2\sqrt{3} \approx 3.9 ¦ x = 2\sqrt{3} = 6 ¦ 2 \sqrt{3} \text{ thousand}
2\sqrt{3} ¦ \sqrt{3}+\sqrt{2}
0 ¦ 0 \cdot \infty ¦ \infty - \infty ¦ 0/0 ¦ x - x + 1 ¦ \emptyset ¦ \text{zero or one} ¦ 0 = x^2 ¦ 10^{-6}
0 ¦ 0\% \text{ or } 1 ¦ \varnothing
1 ¦ x
(1,2) ¦ x = 1, y = 3 ¦ (1,2), (3,4) ¦ (1,2) \cup (3,4) ¦ [1,2] ¦ (1,2]
\text{Saturday} ¦ \text{Saturday or Sunday} ¦ \text{Saturday, Sunday} ¦ \text{Saturday}, \text{Sunday}
\text{Saturday} ¦ Sunday \text{Saturday} ¦ \text{Saturday/Sunday} ¦ \text{the day is not Saturday}
5 ¦ 5 \text{ sqrt} ¦ 5 \text{ fifths} ¦ 5 \text{ percentages} 6 ¦ 5 \text{ nth} ¦ 5\text{k} ¦ 5K ¦ 5M ¦ 5 \text{ k}
5 ¦ 5 \text{ Mio} ¦ 5 \text{ lakh} ¦ 5 \text{ crore} ¦ 5 \text{ score} ¦ 5 \text{ gross} ¦ 5 \text{ ppm}
5 ¦ 5 \text{ bps} ¦ 5 \text{ basis points}
5 ¦ x := 6 = 5 ¦ f(6) = 6 = 5 ¦ {5} {6} ¦ x={6}=5 ¦ 5 \color{red}{6} ¦ \color{white}{6} 5 ¦ \textcolor{white}{6}5
A ¦ (A) 5, (B) 6 ¦ (A) 5 (B) 6 ¦ (A) 5 \text{ or (B) 6} ¦ (B) 1 ¦ (A) 5 = 6
"""

GOLDS = [
    "34", "025", r"p - q", r"\text{Evelyn}", r"90^\circ", r"6 - 5i", "x=5", "1,-2", "52_8", r"(6,31,-1)", r"\cot x",
    r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}", r"(3,4]", r"\frac43", r"\frac 59", "4210_{5}", r"\$32,\!348",
    r"\frac{270}7\text{ degrees}", ".0000672", "10,\\!080", r"\text{(C)}", "1\\frac{4}{5}", r"864 \mbox{ inches}^2",
    r"\{1\pm\sqrt{5},-2\}", r"(0,9) \cup (9,36)", r"x \in [-2,7]", "y = 2x + 3", "4.5e33", "np.arcsin(10/13)", "-1./3",
    r"\frac{2 \pi c^{2} R^{2}}{\lambda^{5}\left[e^{h c /(\lambda k T)}-1\right] d^{2}}", "MR=SRMC", "+2", "E_{1},E_{2}",
    r"\frac{dM}{dt}=\frac{10^{5} L_{\odot}}{0.007 c^{2} M_{\odot}^{6}} M^{6}", r"y^{\prime}+r y-r x(t)=0", "I(0)",
    r"m l \ddot{\theta}(t)-m g \sin \theta(t)=f(t) \cos \theta(t)", "$69$,$84$", "$k=1$", "$221,$8$", "62.5%",
    r"$f(n)=n$, $g(n)=1$", r"$\angle B E A_{1}=90$,$\angle A E B_{1}=90$", r"$k \geqslant 2$", r"$t(0,4]$",
    r"$(-\infty, 0) \cup\{1\}$.", r"$\frac{41}{12}$", r"$(10^{4}, 10^{3}, 10^{10}),(10^{2}, 10^{-1}, 10^{-2})$",
    "12:00",
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), cases(EQUAL))
def test_equal(gold, answer):
    assert judge(answer, gold).outcome is Outcome.EQUAL


@pytest.mark.parametrize(("gold", "answer"), cases(NOT_EQUAL))
def test_not_equal(gold, answer):
    assert not judge(answer, gold).correct


@pytest.mark.parametrize("gold", GOLDS)
def test_every_gold_equals_itself_in_every_format(gold):
    bare = gold.replace(r"\$", "USD").replace("$", "").replace("USD", r"\$")
    for answer in (gold, f"${bare}$", gold.replace(r"\frac", r"\dfrac"), f"{gold}.", f"{gold}\n", f" {bare} "):
        assert judge(answer, gold).correct, answer


def test_no_gold_equals_another():
    for gold in GOLDS:
        assert not [other for other in GOLDS if other != gold and judge(other, gold).correct], gold


@pytest.mark.parametrize(
    ("gold", "answer", "tolerance", "correct"),
    [
        ("4.2", "4.25", 1e-1, True),
        ("4.2", "4.3", 1e-1, True),
        ("4.2", "4.31", 1e-1, False),
        (r"\pi", "3.1", 1e-1, True),
        ("1.5, 2", "2.04, 1.46", 1e-1, True),
        ("4.5e33", "4.51e33", 1e-1, False),
        ("4.2", "x", 1e-1, False),
    ],
)
def test_tolerance_is_absolute(gold, answer, tolerance, correct):
    assert judge(answer, gold, tolerance).correct is correct


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{34}", "34"),
        (r"First \boxed{1}, no: \boxed{2}", "2"),
        (r"\boxed{1} or \fbox{2}", "2"),
        (r"\fbox{1} or \boxed{2}", "2"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed {3}", "3"),
        (r"so $\boxed 5$.", "5"),
        (r"\(\boxed 5\)", "5"),
        (r"\boxed 5.", "5"),
        (r"\boxed{x\\}", r"x\\"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{\begin{pmatrix}a\\{b}\end{pmatrix}}", r"\begin{pmatrix}a\\{b}\end{pmatrix}"),
        (r"\boxed{\fbox{3}}", "3"),
        (r"\boxed{x = \boxed{3}}", r"x = \boxed{3}"),
        (r"\boxed{\boxed{3}, \boxed{4}}", r"\boxed{3}, \boxed{4}"),
        (r"\boxed{\text{not } \boxed{\boxed{3}}} and \boxed{4} in \boxed{5", None),
        (r"\boxed{\text{not } \boxed 3}", r"\text{not } \boxed 3"),
        (r"\boxed{1 \boxed{2}", "2"),
        (r"\boxed{1} and \boxed{2", None),
        (r"\boxed{}", ""),
        (r"\boxed{a\}", None),
        (r"\boxed", None),
        (r"\boxedplus{3}", None),
        (r"\boxed{3} \boxedplus{4}", "3"),
        ("The answer is 34.", None),
        ("", None),
    ],
)
def test_final_boxed(text, content):
    assert final_boxed(text) == content


@pytest.mark.parametrize(
    ("response", "correct"),
    [
        (r"<think>\boxed{1}</think> \boxed{5}", True),
        (r"<think>\boxed{5}</think> It is five.", False),
        (r"<think>\boxed{5}</think> \boxed{1}", False),
        (r"<think>\boxed{5}", True),
        (r"\boxed{1}</think>a</think>\boxed{5}", True),
        (r"\boxed{5}</think>", False),
    ],
)
def test_only_what_follows_the_reasoning_counts(response, correct):
    assert judge_math(response, "5").correct is correct


@pytest.mark.parametrize(
    ("response", "outcome", "extracted"),
    [
        ("34", Outcome.NO_ANSWER, None),
        (r"\boxed{x = \boxed{34}}", Outcome.EQUAL, r"x = \boxed{34}"),
        (r"\boxed{\text{not } \boxed{34}}", Outcome.UNREADABLE, r"\text{not } \boxed{34}"),
        ("The answer is $34$.", Outcome.NO_ANSWER, None),
        (r"\boxed{}", Outcome.NO_ANSWER, ""),
        (r"\boxed{34", Outcome.NO_ANSWER, None),
        (r"\boxed{ 35 }", Outcome.NOT_EQUAL, "35"),
        (r"\boxed{\text{many}}", Outcome.NOT_EQUAL, r"\text{many}"),
        (r"\boxed{\frac{1}{}}", Outcome.UNREADABLE, r"\frac{1}{}"),
        (r"\boxed{34}", Outcome.EQUAL, "34"),
    ],
)
def test_outcomes(response, outcome, extracted):
    verdict = judge_math(response, "34")
    assert (verdict.outcome, verdict.extracted) == (outcome, extracted)
    assert verdict.reward == float(outcome is Outcome.EQUAL)


@pytest.mark.parametrize("gold", ["", " \n", "$$", r"\boxed{}", r"\frac{1}{", "}{", "?", "9" * (LONGEST_ANSWER + 1)])
def test_a_gold_that_cannot_be_read_is_an_error_and_not_a_zero(gold):
    with pytest.raises(ValueError, match="gold answer"):
        judge_math("no box", gold)


@pytest.mark.parametrize("error", [RecursionError, MemoryError, ZeroDivisionError])
def test_a_library_that_gives_up_is_told_from_a_wrong_answer(monkeypatch, error):
    def fails(*arguments):
        raise error

    monkeypatch.setattr(comparison, "equal", fails)
    assert judge("3", "3").outcome is Outcome.UNREADABLE


HUGE = [
    "10^{10^{10}}", "9999999!", "((10!)!)!", "9^{9^{9^{9}}}", "1e999999", r"10^{999999999}", r"2^{-10^{9}}", "(10^9)!",
    r"\binom{1000000000}{500000000}", r"\sin(99999999!)", r"\frac{10^{10^9}}{10^{10^9}}", r"\exp(10^{10^5})",
    r"\lfloor 10^{10^8}\rfloor", "x^{x^{x^{x^{x^x}}}}", "(x^{1000})^{1000}", "(1+x)^{30000}", r"i^{10^{30}}",
    "(" * 300 + "5" + ")" * 300, "{" * 300 + "5" + "}" * 300, "2^" * 500 + "2", "-" * 1000 + "5", "1+" * 900 + "1",
    r"\sqrt{" * 100 + "5" + "}" * 100, r"\pm" * 500, ",5" * 1000, "(" + r"\pm 1," * 30 + "1)", "9" * LONGEST_ANSWER,
    "5" * (LONGEST_ANSWER + 1), r"\text{" * 600, "a" * 3000 + "1=5", " " * 3999, r"\frac" * 700,
]  # fmt: skip


@pytest.mark.parametrize("answer", HUGE, ids=[answer[:20] for answer in HUGE])
def test_what_would_fill_memory_or_time_is_refused_at_once(answer):
    started = time.process_time()
    assert judge(answer, "5").outcome in (Outcome.UNREADABLE, Outcome.NOT_EQUAL, Outcome.NO_ANSWER)
    assert not judge(answer, "5x+1").correct
    assert time.process_time() - started < 10


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "text",
    ["\\" * MEGABYTE, "{" * MEGABYTE, "\\boxed{" + "\\" * MEGABYTE, "\\boxed{" * (MEGABYTE // 7),
     "\\boxed" * (MEGABYTE // 6), "\\boxed" + " " * MEGABYTE,
     "\\boxed{" + "{" * (MEGABYTE // 2) + "}" * (MEGABYTE // 2),
     "\\fboxa\\boxedb" * (MEGABYTE // 13), "</think>" * (MEGABYTE // 8)],
    ids=range(9),
)  # fmt: skip
def test_extraction_takes_linear_time(text):
    started = time.process_time()
    assert final_boxed(answer_part(text)) is None
    assert time.process_time() - started < 2


PIECES = [
    "\\", "{", "}", "(", ")", "[", "]", "\\frac", "\\sqrt", "^", "_", "1", "2", "10", "x", "y", "e", "i", "\\pi", "+",
    "-", "=", "<", "\\le", ",", ";", ".", "\\text{", "\\text{ cm}", "\\mathrm", "\\cdot", "!", "|", "\\pm", "\\cup",
    "\\in", "\\infty", "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "$", "%", "\\%", "\\$", "^\\circ", " ", "\n",
    "\\left", "\\right", "\\{", "\\}", ":", "\\approx", "e5", " and ", " or ", "\\sin", "\\log", "\\binom", "\\boxed{",
    "\\lfloor", "\\rfloor", "'", "\\ldots", "0", " km", "</think>", "\\boxed",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
NESTED = st.recursive(st.sampled_from(["1", "x", ""]), lambda inner: st.builds("{{{}}}{}".format, inner, inner))


@settings(max_examples=EXAMPLES)
@given(st.one_of(st.text(), SOUP))
def test_extraction_never_fails(text):
    content = final_boxed(answer_part(text))
    assert content is None or content in text


@settings(max_examples=EXAMPLES)
@given(st.one_of(SOUP, NESTED))
def test_what_is_put_in_a_box_is_found(content):
    boxed = final_boxed(rf"text \boxed{{{content}}} text")
    if "\\boxed" not in content and "{" not in content and "}" not in content and not content.endswith("\\"):
        assert boxed == content


@settings(max_examples=EXAMPLES)
@given(
    st.one_of(st.text(max_size=60), SOUP, NESTED),
    st.sampled_from(["5", r"\frac{1}{2}", "x+1", "(1,2)", "1,2", "x=5", r"\text{even}", "4.5e33", "y=2x+3"]),
)
def test_judging_never_fails_and_nonsense_is_not_correct(answer, gold):
    started = time.process_time()
    verdict = judge(answer, gold)
    assert time.process_time() - started < 20
    if not any(character in answer for character in "15xe"):
        assert not verdict.correct


@settings(max_examples=EXAMPLES)
@given(st.one_of(st.text(max_size=60), SOUP, NESTED))
def test_any_gold_is_read_or_refused(gold):
    try:
        judge_math(r"\boxed{1}", gold)
    except ValueError as error:
        assert "gold answer" in str(error)


@settings(max_examples=EXAMPLES)
@given(st.integers(-(10**40), 10**40), st.integers(-(10**40), 10**40))
def test_integers_are_compared_exactly(one, other):
    assert judge(str(one), str(other)).correct is (one == other)
    assert judge(f"{one:,}".replace(",", r",\!"), str(one)).correct
    assert not judge(f"{one} + 10^{{-20}}", str(one)).correct


@settings(max_examples=EXAMPLES)
@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 20))
def test_fractions_are_compared_exactly(top, bottom, factor):
    gold = rf"\frac{{{top}}}{{{bottom}}}"
    assert judge(rf"\dfrac{{{top * factor}}}{{{bottom * factor}}}", gold).correct
    assert not judge(rf"\frac{{{top * 10**6 + 1}}}{{{bottom * 10**6}}}", gold).correct


@settings(max_examples=EXAMPLES)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6, unique=True), st.randoms())
def test_lists_are_equal_in_any_order_but_not_with_one_more_or_less(values, random):
    gold = ", ".join(map(str, values))
    shuffled = random.sample(values, len(values))
    assert judge(", ".join(map(str, shuffled)), gold).correct
    assert not judge(", ".join(map(str, shuffled[1:])), gold).correct
    assert not judge(", ".join(map(str, [*shuffled, 99])), gold).correct
