"""What a first look at the pieces says."""

import numpy as np

from tailproof.data.first_look import unlike_chance


def test_pieces_that_look_sorted():
    rng = np.random.default_rng(0)

    def moments(parts):
        return np.array([[p.size, p.sum(), (p**2).sum()] for p in parts])

    alike = rng.standard_normal((20, 500))
    assert unlike_chance(moments(alike)) < 3
    assert unlike_chance(moments(np.sort(alike.ravel()).reshape(20, 500))) > 100
    assert unlike_chance(moments(alike[:1])) == 1.0
    assert unlike_chance(moments(np.ones((3, 5)))) == 1.0
