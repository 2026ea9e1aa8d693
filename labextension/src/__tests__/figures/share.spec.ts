import { formatMilli, parseShare } from '../../figures/share';

describe('a share as a person writes it', () => {
  it.each([
    ['0.2', 200],
    ['.5', 500],
    ['1', 1000],
    ['0.001', 1],
    ['0.07', 70],
    ['20%', 200],
    ['12.5 %', 125],
    [' 0.3 ', 300]
  ])('%p is %p thousandths of a GPU', (text, milli) => {
    expect(parseShare(text)).toEqual({ ok: true, share: { milli, mib: null } });
  });

  it.each([
    ['2560MiB', 2560],
    ['2.5GiB', 2560],
    ['1 gib', 1024]
  ])('%p is %p MiB of memory', (text, mib) => {
    expect(parseShare(text)).toEqual({ ok: true, share: { milli: null, mib } });
  });

  it.each([
    ['', 'empty'],
    ['   ', 'empty'],
    ['banana', 'syntax'],
    ['-0.2', 'syntax'],
    ['1.', 'syntax'],
    ['2GB', 'syntax'],
    ['0.2 0.3', 'syntax'],
    ['1e-1', 'syntax'],
    ['0x1', 'syntax'],
    ['0', 'zero'],
    ['0%', 'zero'],
    ['1.7', 'too-large'],
    ['101%', 'too-large'],
    ['0.0001', 'too-fine'],
    ['0.12345', 'too-fine'],
    ['0.5MiB', 'too-fine'],
    ['999999999999GiB', 'too-large']
  ])('%p is refused as %p', (text, problem) => {
    expect(parseShare(text)).toEqual({ ok: false, problem });
  });

  it('is written without needless zeros', () => {
    expect([200, 1000, 125, 1].map(formatMilli)).toEqual([
      '0.2',
      '1',
      '0.125',
      '0.001'
    ]);
  });

  it('reads back what it writes, for each size there is', () => {
    for (let milli = 1; milli <= 1000; milli++) {
      expect(parseShare(formatMilli(milli))).toEqual({
        ok: true,
        share: { milli, mib: null }
      });
    }
  });
});
