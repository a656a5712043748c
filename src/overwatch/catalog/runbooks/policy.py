"""What to do about the policy: what its rows mean together and over time. Single rows have their own text."""

from typing import Final

from overwatch.catalog.runbooks.book import Runbook

ENTRIES: Final = (
    Runbook(
        code="non-finite",
        means="The trainer sent NaN or an infinity where numbers must be finite. It never heals by itself.",
        confirm="The message names how many and the last field; the feed shows which one was first.",
        act=(
            "Stop and reload the newest checkpoint from before it; lower the learning rate, clip gradients, "
            "look at rewards and observations of that update; with AMP look at the loss scale."
        ),
    ),
    Runbook(
        code="policy-collapse",
        means=(
            "Returns fell and a row of the policy shows why; or several rows are far beyond their limits "
            "together: its steps are too large and it stops exploring, or it already has."
        ),
        confirm="Its factors name the rows; look whether entropy fell while KL and clipping rose.",
        act="Stop; go back to the last good checkpoint with a lower learning rate or fewer epochs.",
    ),
    Runbook(
        code="policy-frozen",
        means=(
            "No update moves the policy: KL and the share clipped are exactly 0, and entropy, critic or "
            "returns show that this is no success. Weights that once became huge never come back."
        ),
        confirm="Its message names the sign; the first updates, or those just before it, show the jump.",
        act="Stop; start again with a lower `learning_rate`; check that the optimiser steps at all.",
    ),
    Runbook(
        code="critic-diverged",
        means=(
            "The critic's loss is thousands of times the square of all that was ever earned, or five times "
            "what it was before the critic had learned anything, and it explains nothing."
        ),
        confirm="Value loss against the largest return and the first update; explained variance.",
        act="Stop; lower `learning_rate`, normalise rewards, set `max_grad_norm`; start again from before.",
    ),
    Runbook(
        code="loss-diverged",
        means=(
            "The loss of a run that learns from fixed data is more than twice what it was in the first "
            "update, so the model is worse than before."
        ),
        confirm="The sparkline of `total_loss`; the learning rate and the gradients of the first updates.",
        act="Stop; lower `learning_rate`, warm it up, set `max_grad_norm`; start again from before.",
    ),
    Runbook(
        code="likelihood-displacement",
        means=(
            "The log probability of preferred answers is three times as far below 0 as in the first update: "
            "they are separated from the others, and yet the model would hardly give them."
        ),
        confirm="The sparkline of `chosen_log_prob`; what the model answers to a few prompts.",
        act="Lower `learning_rate`, raise beta, or add the loss of the preferred answers; start again.",
    ),
    Runbook(
        code="entropy-explosion",
        means=(
            "Actions spread twice as wide as at first, or entropy rose by a nat, and returns did not rise, "
            "so the policy acts more and more at random."
        ),
        confirm="Look at `action_std` or `entropy_nats` against the return, from the first update on.",
        act=(
            "Lower the learning rate or the entropy coefficient; bound the standard deviation of actions; go "
            "back to a checkpoint from before it rose."
        ),
    ),
    Runbook(
        code="zero-gradients",
        means="Gradients are exactly 0, or a hundredth of what they were: nothing is learned any more.",
        confirm="The sparkline of `grad_norm`; whether advantages differ within a batch.",
        act=(
            "Look for a loss that is detached, parameters without gradient, saturated units, a scaler that "
            "skips each step; where all rewards of a batch are equal, change the task or the group size."
        ),
    ),
    Runbook(
        code="gradient-spikes",
        means="Single updates have gradients far beyond their neighbours'; three within 100 are a pattern.",
        confirm="Their places in the sparkline of `grad_norm`; rewards and observations of those batches.",
        act="Look for outliers; set `max_grad_norm`, which turns this into information.",
    ),
    Runbook(
        code="learning-rate-zero",
        means="The learning rate is 0 while updates go on: each costs its time and changes nothing.",
        confirm="The sparkline of `learning_rate`, and the planned number of updates.",
        act="Give the schedule the run's own number of updates, or end the run where the schedule ends.",
    ),
    Runbook(
        code="rank-diverged",
        means=(
            "One rank's numbers lie far from those of the other ranks, which share its policy; or they stand "
            "still, are another rank's, or are not sent at all, where each rank should see data of its own."
        ),
        confirm="Its message names the rows and both values.",
        act=(
            "Look at that rank's data, seed and device; check that gradients are shared (a model that is not "
            "wrapped, a parameter left out) and that weights are equal at the start."
        ),
    ),
    Runbook(
        code="steps-too-large",
        means="Updates move the policy too far: KL is beyond its limit and many samples are clipped.",
        confirm="KL, its target, and the share clipped, over the newest updates.",
        act="Lower the learning rate or the number of epochs, or declare `target_kl` and stop early.",
    ),
    Runbook(
        code="critic-failing",
        means="The critic's loss is high and it explains nothing, while there is something to explain.",
        confirm="Explained variance below 0 for five updates, value loss several times its own median.",
        act="Check the scale of rewards and the discount; give the critic more epochs or a larger share.",
    ),
    Runbook(
        code="kl-spike",
        means="A single update moved the policy far more than its neighbours do.",
        confirm="Its place in the sparkline of KL; whether later updates are as before.",
        act="Nothing after one; where they come again, look at their batches and set `target_kl`.",
    ),
    Runbook(
        code="slow-drift",
        means="A row creeps towards its bad side, update by update, while each single value looks usual.",
        confirm="The message gives the level it had when its baseline was frozen and the level now.",
        act=(
            "Compare with a checkpoint from before; look at what changes slowly: schedules, normalisers, "
            "data. A change of the task should be reported as one."
        ),
    ),
    Runbook(
        code="reward-collapse",
        means="The return of the whole fleet fell below what it was, by more than its own scatter.",
        confirm="Median of the newest finished episodes against the earlier ones; KL and entropy beside it.",
        act="Look at KL and entropy at that moment; go back to the last good checkpoint.",
    ),
    Runbook(
        code="reward-hacking",
        means=(
            "The proxy that the policy is paid by rose and the true return did not follow: it falls, it "
            "stays where it was, or what is eaten follows the draw though the true return depends on it. "
            "The policy learns the proxy's flaw (Goodhart's law)."
        ),
        confirm=(
            "Its factors give the numbers: `proxy_return` and `true_return` in one chart, `goodhart_gap`, "
            "`food_share` against what was offered; episodes with a high proxy and a low true return."
        ),
        act=(
            "Stop: more training makes it worse. Go back to the checkpoint where the two part (▲ on the "
            "chart); change the reward so that what is wrong no longer pays, or stay closer to that policy."
        ),
    ),
    Runbook(
        code="converged",
        means="Entropy is low, falls no more, and returns are at their best: the task may be solved.",
        confirm="Evaluate the policy on held-out episodes.",
        act="Stop, or raise the entropy coefficient where it should explore on.",
    ),
    Runbook(
        code="recompiles",
        means="After the warm-up, something was compiled again: the loop waited for the compiler.",
        confirm="Its factor names the function and the guard that failed; the feed has one line an update.",
        act=(
            "Keep batch shapes, types and flags the same in each update; pad the last minibatch; mark a size "
            "that changes with `torch._dynamo.mark_dynamic`, or leave that function out of `torch.compile`."
        ),
    ),
    Runbook(
        code="early-stop",
        means=(
            "The trainer stopped an update before its last epoch, and KL stayed near its target: it worked."
        ),
        confirm="KL of that update is below twice its target.",
        act="Nothing; where most updates stop early, a lower learning rate wastes fewer epochs.",
    ),
)
