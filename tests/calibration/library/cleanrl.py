"""CleanRL's `ppo.py` and `dqn.py` as their users have them: one loop each, its names, and `SummaryWriter`.

The trainings are those of https://github.com/vwxyzjn/cleanrl with its settings and its order of steps, and
report through the writer that stands in for TensorBoard's. A fault changes the settings, or the networks.
"""

import contextlib
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions.categorical import Categorical
from torch.nn import functional

from overwatch.adapters.tensorboard import SummaryWriter
from tests.calibration.library.drawing import Draw, settings_of
from tests.calibration.library.worlds import Fault, build

MOST_CPU_S: Final = 100.0


def _arguments(draw: Draw) -> SimpleNamespace:
    case = draw.case
    args = SimpleNamespace(
        exp_name=case.algorithm.removeprefix("cleanrl-"), env_id=case.world, seed=draw.seed
    )
    vars(args).update(settings_of(case))
    args.learning_rate *= draw.between("learning_rate", 0.7, 1.3)
    batch = {"large-batch": 4, "small-batch": 0.25}.get(case.kind, draw.one("batch", (1, 1, 2)))
    if case.algorithm == "cleanrl-ppo":
        args.num_steps = int(args.num_steps * batch)
        args.anneal_lr = draw.one("anneal_lr", (True, False)) or case.kind == "schedule"
        args.target_kl = draw.one("target_kl", (None, None, 0.03))
    else:
        args.batch_size = int(args.batch_size * batch)
    if case.kind == "slow-learner":
        args.learning_rate *= draw.between("slower", 0.1, 0.3)
    if case.kind == "one-transition":
        args.buffer_size = 1
    args.cycles = draw.one("cycles", (3, 4, 6)) if case.kind == "warm-restarts" else 0
    return args


RANKED: Final = ("two-ranks", "repeated-rank")
"""Kinds with two ranks, here in one process: their gradients are averaged, each reports its own numbers."""


class Loop:
    """What both have: envs, writer, the fault's beginning, the rate."""

    def __init__(self, draw: Draw, fault: Fault, begins: float, rank: int = 0) -> None:
        self.draw, self.fault, self.begins, self.args = draw, fault, begins, _arguments(draw)
        args = self.args
        torch.manual_seed(args.seed)
        self.draws = np.random.default_rng(args.seed)
        self.rank, self.kept = rank, dict[str, Tensor]()
        of_rank = {"rank": rank, "run_id": f"{args.env_id}-{args.seed}"} if draw.case.kind in RANKED else {}
        self.writer = SummaryWriter(f"runs/{args.env_id}__{args.exp_name}__{args.seed}", **of_rank)
        rows = "\n".join(f"|{name}|{value}|" for name, value in vars(args).items())
        self.writer.add_text("hyperparameters", f"|param|value|\n|-|-|\n{rows}")
        self.envs = gymnasium.vector.SyncVectorEnv(
            [self._env(number) for number in range(args.num_envs)],
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
        )
        space = self.envs.single_action_space
        assert isinstance(space, gymnasium.spaces.Discrete)
        assert self.envs.single_observation_space.shape is not None
        self.actions, self.seen = int(space.n), int(np.prod(self.envs.single_observation_space.shape))
        self.obs, _ = self.envs.reset(seed=args.seed % 100_000 + 1000 * rank)
        self.ended = torch.zeros(args.num_envs)
        self.times, self.step, self.began, self.cpu = 1.0, 0, time.perf_counter(), time.process_time()

    def _env(self, number: int) -> Callable[[], Any]:
        return lambda: gymnasium.wrappers.RecordEpisodeStatistics(build(self.args.env_id, self.fault, number))

    @property
    def done(self) -> float:
        """Share of the training."""
        return self.step / self.args.total_timesteps

    @property
    def is_over(self) -> bool:
        """Whether its steps are done, or more than its time is gone."""
        return self.done >= 1 or time.process_time() - self.cpu > MOST_CPU_S

    def rate(self) -> float:
        """The learning rate now."""
        args, rate = self.args, self.args.learning_rate * self.times
        if args.cycles:
            rate *= 0.1 + 1.2 * (1 + np.cos(np.pi * (self.done * args.cycles % 1))) / 2
        return rate * (1 - self.done) if getattr(args, "anneal_lr", False) else rate

    def strike(self, policy: nn.Sequential, critic: nn.Sequential | None, optimizer: Any) -> None:
        """Turn the fault on when it is time."""
        if self.fault.is_on or self.done < self.begins:
            return
        self.fault.is_on, kind, draw = True, self.draw.case.kind, self.draw
        changes = CHANGES.get(kind, {})
        vars(self.args).update(changes)
        times = {
            "rate-x10": (8, 30),
            "rate-x100": (60, 300),
            "rate-x1000": (700, 3000),
            "unclipped": (20, 100),
        }
        if kind in times:
            self.times = draw.between("times", *times[kind])
        elif kind == "rate-0":
            self.times = 0.0
        elif kind == "entropy-bonus":
            self.args.ent_coef = draw.between("ent_coef", 0.5, 10)
        elif kind == "frozen-actor":
            _let_go(policy, optimizer)
        elif kind == "frozen-critic" and critic is not None:
            _let_go(critic, optimizer)
        with torch.no_grad():
            layers = [one for one in policy if isinstance(one, nn.Linear)]
            if kind == "dead-relu":
                for layer in layers[:-1]:
                    layer.weight *= 0.0
                    layer.bias.fill_(-1e3 if self.draw.case.algorithm == "cleanrl-dqn" else 20.0)
            elif kind == "blown-weights":
                for weight in policy.parameters():
                    weight.mul_(draw.between("blown", 10, 100))
            elif kind == "nan-weights":
                layers[0].weight[0] = float("nan")

    def episodes(self, infos: dict[str, Any]) -> None:
        """Log what ended at a step, as CleanRL does."""
        final = infos.get("final_info", {})
        for number in np.flatnonzero(np.asarray(final.get("_episode", []), dtype=bool)):
            self.writer.add_scalar("charts/episodic_return", final["episode"]["r"][number], self.step)
            self.writer.add_scalar("charts/episodic_length", final["episode"]["l"][number], self.step)

    def log(self, numbers: dict[str, float]) -> None:
        """Log an update's numbers."""
        for tag, value in numbers.items():
            self.writer.add_scalar(tag, value, self.step)
        pace = int(self.step / (time.perf_counter() - self.began))
        self.writer.add_scalar("charts/SPS", pace, self.step)


CHANGES: Final[dict[str, dict[str, Any]]] = {
    "no-entropy": {"ent_coef": 0.0},
    "clip-5": {"clip_coef": 5.0, "clip_vloss": False, "target_kl": None, "update_epochs": 20},
    "epochs-40": {"update_epochs": 40, "target_kl": None},
    "raw-advantages": {"norm_adv": False},
    "no-value-loss": {"vf_coef": 0.0},
    "discount-0": {"gamma": 0.0},
    "unclipped": {"max_grad_norm": 1e12},
    "no-target-updates": {"target_network_frequency": 1 << 40},
    "epsilon-1": {"start_e": 1.0, "end_e": 1.0},
}


def _let_go(module: nn.Module, optimizer: Any) -> None:
    """The optimiser holds a copy."""
    held = {id(one) for one in module.parameters()}
    for group in optimizer.param_groups:
        group["params"] = [one.detach().clone() if id(one) in held else one for one in group["params"]]


def _layer(inputs: int, outputs: int, std: float = np.sqrt(2)) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, 0.0)
    return layer


def _tower(inputs: int, outputs: int, std: float) -> nn.Sequential:
    return nn.Sequential(_layer(inputs, 64), nn.Tanh(), _layer(64, 64), nn.Tanh(), _layer(64, outputs, std))


def ppo(draw: Draw, fault: Fault, begins: float) -> None:
    """`ppo.py`."""
    loops = [Loop(draw, fault, begins, rank) for rank in range(2 if draw.case.kind in RANKED else 1)]
    loop, args = loops[0], loops[0].args
    actor, critic = _tower(loop.seen, loop.actions, 0.01), _tower(loop.seen, 1, 1.0)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=args.learning_rate, eps=1e-5)
    count = [0]
    with contextlib.ExitStack() as stack:
        for one in loops:
            stack.enter_context(one.writer)
        while not loop.is_over:
            loop.strike(actor, critic, optimizer)
            optimizer.param_groups[0]["lr"] = loop.rate()
            for one in loops:
                if one.kept and one.rank and fault.is_on and draw.case.kind == "repeated-rank":
                    one.step += args.num_envs * args.num_steps
                else:
                    _rollout(one, actor, critic)
            for one, numbers in zip(loops, _learn(loops, actor, critic, optimizer, count), strict=True):
                one.log({"charts/learning_rate": optimizer.param_groups[0]["lr"], **numbers})


def _rollout(loop: Loop, actor: nn.Module, critic: nn.Module) -> None:
    args, rows, done = loop.args, list[tuple[Tensor, ...]](), loop.ended
    for _ in range(args.num_steps):
        loop.step += args.num_envs
        obs = torch.tensor(loop.obs, dtype=torch.float32)
        with torch.no_grad():
            chances, value = Categorical(logits=actor(obs)), critic(obs).flatten()
            action = chances.sample()
        loop.obs, reward, ended, cut, infos = loop.envs.step(action.numpy())
        paid = torch.tensor(reward, dtype=torch.float32)
        rows.append((obs, action, chances.log_prob(action), value, paid, done))
        done = torch.tensor(np.logical_or(ended, cut), dtype=torch.float32)
        loop.episodes(infos)
    obs, actions, logprobs, values, rewards, dones = (
        torch.stack(column) for column in zip(*rows, strict=True)
    )
    advantages, last = torch.zeros_like(rewards), torch.zeros(args.num_envs)
    with torch.no_grad():
        after = critic(torch.tensor(loop.obs, dtype=torch.float32)).flatten()
    for step in reversed(range(args.num_steps)):
        is_final = step == args.num_steps - 1
        goes_on, coming = (1 - done, after) if is_final else (1 - dones[step + 1], values[step + 1])
        delta = rewards[step] + args.gamma * coming * goes_on - values[step]
        advantages[step] = last = delta + args.gamma * args.gae_lambda * goes_on * last
    kept = {"obs": obs, "actions": actions, "logprobs": logprobs, "values": values, "advantages": advantages}
    kept["returns"] = advantages + values
    loop.kept, loop.ended = {name: column.flatten(0, 1) for name, column in kept.items()}, done


def _learn(
    loops: list[Loop], actor: nn.Module, critic: nn.Module, optimizer: Any, count: list[int]
) -> list[dict[str, float]]:
    """The numbers of each rank."""
    loop, args, total = loops[0], loops[0].args, len(loops[0].kept["obs"])
    clipped: list[list[float]] = [[] for _ in loops]
    found: list[dict[str, float]] = []
    every = 2 if loop.draw.case.kind == "accumulation" else 1
    for _ in range(args.update_epochs):
        for rows in torch.randperm(total).split(max(total // args.num_minibatches, 1)):
            parts = [
                _loss(one, actor, critic, {name: column[rows] for name, column in one.kept.items()})
                for one in loops
            ]
            found = [numbers for numbers, _ in parts]
            for held, numbers in zip(clipped, found, strict=True):
                held.append(numbers.pop("clipped"))
            count[0] += 1
            if count[0] % every == 0:
                optimizer.zero_grad()
            (torch.stack([loss for _, loss in parts]).mean()).backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], args.max_grad_norm)
            is_skipped = loop.draw.case.kind == "skipped-steps" and loop.draws.random() < 0.05
            if count[0] % every == every - 1 and not is_skipped:
                optimizer.step()
        if args.target_kl is not None and found[0]["losses/approx_kl"] > args.target_kl:
            break
    for one, numbers, held in zip(loops, found, clipped, strict=True):
        spread = float(one.kept["returns"].var(unbiased=False))
        unexplained = float((one.kept["returns"] - one.kept["values"]).var(unbiased=False))
        numbers["losses/clipfrac"] = float(np.mean(held))
        numbers["losses/explained_variance"] = np.nan if spread == 0 else 1 - unexplained / spread
    return found


def _loss(
    loop: Loop, actor: nn.Module, critic: nn.Module, rows: dict[str, Tensor]
) -> tuple[dict[str, float], Tensor]:
    args = loop.args
    chances, value = Categorical(logits=actor(rows["obs"])), critic(rows["obs"]).flatten()
    logratio = chances.log_prob(rows["actions"]) - rows["logprobs"]
    ratio, advantages = logratio.exp(), rows["advantages"]
    if args.norm_adv:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    limited = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    policy_loss = torch.max(-advantages * ratio, -advantages * limited).mean()
    errors = (value - rows["returns"]) ** 2
    if args.clip_vloss:
        near = rows["values"] + torch.clamp(value - rows["values"], -args.clip_coef, args.clip_coef)
        errors = torch.max(errors, (near - rows["returns"]) ** 2)
    value_loss, entropy = 0.5 * errors.mean(), chances.entropy().mean()
    numbers = {
        "losses/value_loss": value_loss.item(),
        "losses/policy_loss": policy_loss.item(),
        "losses/entropy": entropy.item(),
        "losses/old_approx_kl": (-logratio).mean().item(),
        "losses/approx_kl": ((ratio - 1) - logratio).mean().item(),
        "clipped": float(((ratio - 1.0).abs() > args.clip_coef).float().mean()),
    }
    return numbers, policy_loss - args.ent_coef * entropy + args.vf_coef * value_loss


def dqn(draw: Draw, fault: Fault, begins: float) -> None:
    """`dqn.py`; it logs each hundredth step that trains."""
    loop = Loop(draw, fault, begins)
    args = loop.args

    def network() -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(loop.seen, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, loop.actions)
        )

    q, target = network(), network()
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=args.learning_rate)
    size = args.buffer_size
    memory = [
        torch.zeros(size, loop.seen),
        torch.zeros(size, loop.seen),
        *(torch.zeros(size) for _ in range(3)),
    ]
    held, slope = 0, args.exploration_fraction * args.total_timesteps
    with loop.writer:
        while not loop.is_over:
            loop.strike(q, None, optimizer)
            optimizer.param_groups[0]["lr"] = loop.rate()
            chance = max(args.start_e + (args.end_e - args.start_e) * loop.step / slope, args.end_e)
            obs = torch.tensor(loop.obs, dtype=torch.float32)
            with torch.no_grad():
                greedy = q(obs).argmax(1).numpy()
            actions = loop.envs.action_space.sample() if loop.draws.random() < chance else greedy
            loop.obs, reward, ended, cut, infos = loop.envs.step(actions)
            loop.step += args.num_envs
            loop.episodes(infos)
            after = infos["final_obs"][0] if (ended | cut)[0] else loop.obs[0]
            new = (obs[0], torch.tensor(np.asarray(after, np.float32)), actions[0], reward[0], ended[0])
            for column, value in zip(memory, new, strict=True):
                column[held % size] = torch.as_tensor(value, dtype=torch.float32)
            held += 1
            if loop.step > args.learning_starts and loop.step % args.train_frequency == 0:
                rows = torch.randint(min(held, size), (args.batch_size,))
                _fit(loop, q, target, optimizer, [column[rows] for column in memory])
            if loop.step % args.target_network_frequency == 0:
                target.load_state_dict(q.state_dict())


def _fit(loop: Loop, q: nn.Module, target: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    obs, after, actions, rewards, ended = rows
    with torch.no_grad():
        aim = rewards + loop.args.gamma * target(after).max(1).values * (1 - ended)
    old = q(obs).gather(1, actions.long().unsqueeze(1)).squeeze()
    loss = functional.mse_loss(aim, old)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loop.step % 100 == 0:
        loop.log({"losses/td_loss": loss.item(), "losses/q_values": old.mean().item()})


def train(draw: Draw, fault: Fault, begins: float) -> None:
    """Train one."""
    (ppo if draw.case.algorithm == "cleanrl-ppo" else dqn)(draw, fault, begins)
