"""Pretrained models as they are loaded."""

import pytest
import torch

from balanced_aggregation.config import PretrainedModel
from balanced_aggregation.models import load_model, load_pretrained, save_model


@pytest.mark.parametrize(("max_positions", "expected"), [(None, 1024), (32768, 32768)])
def test_positions_are_raised_in_what_every_later_stage_reads(tmp_path, make_model, tokenizer, max_positions, expected):
    model = make_model()
    save_model(model, tokenizer, tmp_path / "published")
    config = PretrainedModel(kind="pretrained", path=str(tmp_path / "published"), max_positions=max_positions)
    save_model(*load_pretrained(config), tmp_path / "source")
    loaded, _ = load_model(tmp_path / "source")
    assert loaded.config.max_position_embeddings == expected
    # Nothing else of it has changed, and the positions beyond the model's own can be read.
    ids = torch.arange(1, 9).repeat(1, expected // 512)
    with torch.no_grad():
        logits = loaded(ids).logits
        assert torch.equal(logits, model(ids).logits) and logits.isfinite().all()
