"""Kernel packs: PTX, made by users from sources that they have, for libraries that carry machine code only."""
