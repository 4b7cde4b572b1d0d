import torch

from balanced_aggregation.config import Style, Styles, WarmStart
from balanced_aggregation.data.arithmetic import Chain, write_solution
from balanced_aggregation.training.warm_start import warm_start


def test_it_learns_and_is_reproducible(make_model, tokenizer):
    prompts = [Chain(a, (b,)).prompt for a in range(5) for b in range(1, 5)]
    settings = WarmStart(batches=25, batch_size=8, learning_rate=1e-2)
    models = [make_model(), make_model()]
    losses = [warm_start(model, tokenizer, prompts, settings) for model in models]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 25 and losses[0][-1] < losses[0][0] * 0.75
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_the_loss_is_the_mean_over_tokens(make_model, tokenizer):
    import random

    from balanced_aggregation.seeding import derive_seed

    model = make_model()
    settings = WarmStart(batches=1, batch_size=6, learning_rate=1e-9)
    generator = random.Random(derive_seed(0, "warm start"))
    prompts = ["1+2=", "7-3+1="]
    chosen = generator.choices(prompts, k=6)
    total, tokens = 0.0, 0
    for prompt in chosen:
        text = write_solution(Chain.parse(prompt), settings.styles, generator)
        asked, answer = tokenizer.encode(prompt), [*tokenizer.encode(text), tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(torch.tensor([asked + answer])).logits[0].log_softmax(-1)
        total -= sum(float(logits[len(asked) - 1 + t, token]) for t, token in enumerate(answer))
        tokens += len(answer)
    (loss,) = warm_start(model, tokenizer, prompts, settings)
    assert abs(loss - total / tokens) < 1e-5


def test_styles_can_be_switched_off():
    import random

    nothing = Style(share=0, error_rate=0)
    worked = Styles(terse=nothing, worked=Style(share=1, error_rate=0), long_winded=nothing)
    assert write_solution(Chain(7, (2, -4)), worked, random.Random(0)) == "7+2=9;9-4=5>5"
    twice = Styles(terse=nothing, worked=nothing, long_winded=Style(share=1, error_rate=0))
    assert write_solution(Chain(7, (2, -4)), twice, random.Random(0)) == "7+2=9;9-4=5;7+2=9;9-4=5>5"
    terse = Styles(terse=Style(share=1, error_rate=0), worked=nothing, long_winded=nothing)
    assert write_solution(Chain(7, (2, -4)), terse, random.Random(0)) == ">5"
    wrong = Styles(terse=Style(share=1, error_rate=1), worked=nothing, long_winded=nothing)
    assert all(write_solution(Chain(7, (2, -4)), wrong, random.Random(i)) != ">5" for i in range(50))
