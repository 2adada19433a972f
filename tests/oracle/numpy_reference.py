"""The model in plain loops, written from the paper's appendix and nothing else.

Arrays are indexed exactly as the paper writes them: r[d][c][n][k]. Everything is slow on purpose.
Corrections: sums over tasks and classes in g and H, the sum over L in eq:log_tilde_phi.
"""

import numpy as np
from scipy.special import digamma, gammaln, polygamma


def log_normal(x, mu, Sigma):
    """The bracket of eq:r, times -1/2."""
    D = len(x)
    deviation = x - mu
    mahalanobis = deviation @ np.linalg.inv(Sigma) @ deviation
    return -0.5 * (D * np.log(2 * np.pi) + np.log(np.linalg.det(Sigma)) + mahalanobis)


def log_tilde(concentration):
    """eq:log_tilde_theta and eq:log_tilde_phi."""
    return np.array([digamma(a) - digamma(sum(concentration)) for a in concentration])


def log_B(alpha):
    """eq:log_dirichlet_normalized_const."""
    return sum(gammaln(a) for a in alpha) - gammaln(sum(alpha))


def e_step(x, mu, Sigma, alpha, delta, gamma, eta, lam, sweeps):
    """Procedure E-step of alg:online_ldcc for one task, for a number of sweeps; r is the last."""
    C, N, K, L = len(x), len(x[0]), len(mu), len(delta)
    r = np.zeros((C, N, K))
    gamma, eta, lam = gamma.copy(), eta.copy(), lam.copy()

    def responsibilities():
        for c in range(C):
            for n in range(N):
                log_theta = log_tilde(gamma[c])
                for k in range(K):
                    r[c, n, k] = np.exp(log_theta[k] + log_normal(x[c][n], mu[k], Sigma[k]))
                r[c, n] /= r[c, n].sum()

    for _ in range(sweeps):
        responsibilities()
        for c in range(C):
            for k in range(K):
                gamma[c, k] = 1 + sum(r[c, n, k] for n in range(N))
                gamma[c, k] += sum(eta[c, j] * (alpha[j, k] - 1) for j in range(L))
        for c in range(C):
            log_phi, log_theta = log_tilde(lam), log_tilde(gamma[c])
            for j in range(L):
                exponent = log_phi[j] - log_B(alpha[j])
                exponent += sum((alpha[j, k] - 1) * log_theta[k] for k in range(K))
                eta[c, j] = np.exp(exponent)
            eta[c] /= eta[c].sum()
        for j in range(L):
            lam[j] = delta[j] + sum(eta[c, j] for c in range(C))
    responsibilities()
    return r, gamma, eta, lam


def bound(x, mu, Sigma, alpha, delta, r, gamma, eta, lam):
    """apdx:elbo_derivation for one task: the nine terms, summed with their signs."""
    C, N, K, L = len(x), len(x[0]), len(mu), len(delta)
    log_phi = log_tilde(lam)
    total = -log_B(delta) + sum((delta[j] - 1) * log_phi[j] for j in range(L))
    total -= -log_B(lam) + sum((lam[j] - 1) * log_phi[j] for j in range(L))
    for c in range(C):
        log_theta = log_tilde(gamma[c])
        total -= -log_B(gamma[c]) + sum((gamma[c, k] - 1) * log_theta[k] for k in range(K))
        for j in range(L):
            cross = -log_B(alpha[j]) + sum((alpha[j, k] - 1) * log_theta[k] for k in range(K))
            total += eta[c, j] * (cross + log_phi[j] - np.log(eta[c, j]))
        for n in range(N):
            for k in range(K):
                log_lik = log_normal(x[c][n], mu[k], Sigma[k])
                if r[c, n, k] > 0:
                    total += r[c, n, k] * (log_lik + log_theta[k] - np.log(r[c, n, k]))
    return total


def m_step_gaussian(x, r, nu, Psi0):
    """eq:m_step over all tasks, with nu pseudo-samples of scatter Psi0 for each theme."""
    M, C, N, D = x.shape
    K = r.shape[-1]
    mu, Sigma = np.zeros((K, D)), np.zeros((K, D, D))
    for k in range(K):
        count = sum(r[d, c, n, k] for d in range(M) for c in range(C) for n in range(N))
        for d in range(M):
            for c in range(C):
                for n in range(N):
                    mu[k] += r[d, c, n, k] * x[d, c, n] / count
        for d in range(M):
            for c in range(C):
                for n in range(N):
                    deviation = x[d, c, n] - mu[k]
                    Sigma[k] += r[d, c, n, k] * np.outer(deviation, deviation)
        Sigma[k] = (Sigma[k] + nu * np.diag(Psi0)) / (count + nu)
    return mu, Sigma


def m_step_alpha(alpha, eta, gamma, pseudo_classes, alpha0, iterations=200):
    """apdx:alpha by Newton steps with a dense Hessian, halved until alpha stays positive."""
    M, C, L = eta.shape
    K = alpha.shape[1]
    alpha = alpha.copy()
    for j in range(L):
        w = pseudo_classes + sum(eta[d, c, j] for d in range(M) for c in range(C))
        log_theta = pseudo_classes * log_tilde(np.full(K, alpha0))
        for d in range(M):
            for c in range(C):
                log_theta = log_theta + eta[d, c, j] * log_tilde(gamma[d, c])
        for _ in range(iterations):
            g = w * (digamma(alpha[j].sum()) - digamma(alpha[j])) + log_theta
            H = w * polygamma(1, alpha[j].sum()) - w * np.diag(polygamma(1, alpha[j]))
            step = np.linalg.solve(H, g)
            while (alpha[j] - step <= 0).any():
                step /= 2
            alpha[j] = alpha[j] - step
    return alpha
