"""The posterior given the task-theme in plain loops, one sample at a time; slow on purpose.

No scaling of likelihoods, no extrapolation, no masks: every class is a list of samples.
"""

import numpy as np
from numpy_reference import log_B, log_tilde
from scipy.special import softmax


def start(log_lik, alpha_l):
    """What a task-theme expects: shares by its mean mixture."""
    gamma = alpha_l.copy()
    for sample in log_lik:
        gamma = gamma + softmax(sample + np.log(alpha_l / alpha_l.sum()))
    return gamma


def fit_class(log_lik, alpha_l, sweeps):
    """Gamma of one class under one task-theme, and r of the last sweep's gamma."""
    gamma = start(log_lik, alpha_l)
    for _ in range(sweeps):
        before, gamma = gamma, alpha_l.copy()
        for sample in log_lik:
            gamma = gamma + softmax(sample + log_tilde(before))
        if np.abs(gamma - before).max() < 1e-13:
            break
    return gamma, np.array([softmax(sample + log_tilde(gamma)) for sample in log_lik])


def evidence(log_lik, alpha_l, gamma, r):
    """E[ln p(x, z, theta | y)] - E[ln q(z, theta | y)], term by term."""
    log_theta = log_tilde(gamma)
    total = -log_B(alpha_l) + sum((a - 1) * t for a, t in zip(alpha_l, log_theta, strict=True))
    total -= -log_B(gamma) + sum((g - 1) * t for g, t in zip(gamma, log_theta, strict=True))
    for sample, weights in zip(log_lik, r, strict=True):
        for k, weight in enumerate(weights):
            if weight > 0:
                total += weight * (sample[k] + log_theta[k] - np.log(weight))
    return total


def infer(log_lik, alpha, delta, sweeps=20_000, rounds=20_000):
    """One task, given the log-likelihoods of each of its classes: lam, eta, gamma, r, bound."""
    L = len(delta)
    fits = [[fit_class(own, alpha[j], sweeps) for j in range(L)] for own in log_lik]
    F = np.array(
        [[evidence(own, alpha[j], *fits[c][j]) for j in range(L)] for c, own in enumerate(log_lik)]
    )
    lam = delta + len(log_lik) * delta / delta.sum()
    for _ in range(rounds):
        before = lam
        eta = np.array([softmax(log_tilde(before) + F_c) for F_c in F])
        lam = delta + eta.sum(0)
        if np.abs(lam - before).max() < 1e-13:
            break
    gamma = np.array([[fit[0] for fit in of_class] for of_class in fits])
    r = [sum(eta[c, j] * fits[c][j][1] for j in range(L)) for c in range(len(log_lik))]
    return lam, eta, gamma, r, bound(F, lam, eta, delta)


def bound(F, lam, eta, delta):
    """The terms of the classes, of y and of phi."""
    log_phi = log_tilde(lam)
    total = -log_B(delta) + ((delta - 1) * log_phi).sum()
    total -= -log_B(lam) + ((lam - 1) * log_phi).sum()
    for F_c, eta_c in zip(F, eta, strict=True):
        for j, weight in enumerate(eta_c):
            if weight > 0:
                total += weight * (F_c[j] + log_phi[j] - np.log(weight))
    return total
