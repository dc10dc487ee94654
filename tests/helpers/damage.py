"""Files as a broken disk or a broken transfer leaves them."""


def damaged(content, chance):
    """Cut, overwritten, with bytes missing, or with bytes too many."""
    broken, where = bytearray(content), chance.randrange(len(content))
    kind = chance.randrange(4)
    if kind == 0:
        return bytes(broken[:where])
    if kind == 1:
        for _ in range(chance.randrange(1, 8)):
            broken[chance.randrange(len(content))] = chance.randrange(256)
    elif kind == 2:
        del broken[where : where + chance.randrange(1, 60)]
    else:
        broken[where:where] = chance.randbytes(chance.randrange(1, 60))
    return bytes(broken)
