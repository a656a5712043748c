"""Networks side by side: each row takes Adam's steps, whatever its age."""

import torch

from overwatch_rl.worlds.morphogenesis.hosts.stacked import LEARNING_RATE, Stacked, squared_norm

CPU = torch.device("cpu")


def test_each_row_takes_the_steps_of_adam() -> None:
    """A row that began later is as old as its own steps."""
    stacked = Stacked.zeros(2, [(3,), (2, 2)], CPU)
    start = [torch.randn(2, 3), torch.randn(2, 2, 2)]
    stacked.restart(torch.arange(2), start)
    plain = [[weight[row].clone().requires_grad_() for weight in start] for row in range(2)]
    adams = [torch.optim.Adam(weights, lr=LEARNING_RATE) for weights in plain]
    for step in range(6):
        rows = torch.tensor([0, 1] if step >= 3 else [0])
        gradients = [torch.randn(len(rows), 3), torch.randn(len(rows), 2, 2)]
        taken = stacked.take(rows)
        taken.descend(gradients)
        stacked.put(rows, taken)
        for place, row in enumerate(rows.tolist()):
            for weight, gradient in zip(plain[row], gradients, strict=True):
                weight.grad = gradient[place].clone()
            adams[row].step()

    for row in range(2):
        for ours, theirs in zip(stacked.weights, plain[row], strict=True):
            torch.testing.assert_close(ours[row], theirs.detach(), rtol=1e-4, atol=1e-5)


def test_a_weight_without_gradient_stays() -> None:
    """Zero stays zero, though its moments are."""
    stacked = Stacked.zeros(1, [(2,)], CPU)
    stacked.descend([torch.tensor([[0.0, 1.0]])])

    assert stacked.weights[0][0, 0] == 0.0
    torch.testing.assert_close(stacked.weights[0][0, 1], torch.tensor(-LEARNING_RATE))


def test_a_norm_is_of_all_tensors_of_a_row() -> None:
    """However many they lie in."""
    parts = [torch.randn(4, 3), torch.randn(4, 1, 2)]

    by_hand = torch.cat([part.flatten(1) for part in parts], dim=1).square().sum(dim=1)
    torch.testing.assert_close(squared_norm(parts), by_hand)
