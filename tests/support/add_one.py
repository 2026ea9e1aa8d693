"""A kernel in PTX for programs without packages: adds one to each of so many words."""

from __future__ import annotations

ADD_ONE = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 where, .param .u32 words)
{
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [where];
  ld.param.u32 %r1, [words];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1;
  @%p bra end;
  mul.wide.u32 %d2, %r5, 4;
  add.s64 %d3, %d1, %d2;
  ld.global.u32 %r6, [%d3];
  add.s32 %r6, %r6, 1;
  st.global.u32 [%d3], %r6;
end:
  ret;
}
\0"""
