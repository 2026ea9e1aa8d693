import type { GpuPool } from '../api/types';

/** A share as typed: exactly one of the two is set. */
export interface IShareText {
  /** Thousandths of one device, 1..1000. */
  milli: number | null;
  /** MiB of device memory. */
  mib: number | null;
}

/** Why a text is no share; the view turns this into a sentence. */
export type ShareProblem =
  'empty' | 'syntax' | 'zero' | 'too-fine' | 'too-large';

export type ShareResult =
  { ok: true; share: IShareText } | { ok: false; problem: ShareProblem };

/** A number, then nothing (a fraction), `%`, or a unit of memory. */
const SHARE = /^(\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})\s*(%|mib|gib)?$/i;

/** 16 TiB: more than any device has. */
const MAX_MIB = 16 * 1024 * 1024;

/**
 * Reads `0.2`, `20%`, `2560MiB` or `2.5GiB`.
 *
 * The server reads the text again and has the last word; this gives a hint
 * while one types, so it refuses exactly what `gpupool.shares` refuses.
 */
export function parseShare(text: string): ShareResult {
  const trimmed = text.trim();
  if (trimmed === '') {
    return { ok: false, problem: 'empty' };
  }
  const match = SHARE.exec(trimmed);
  if (!match) {
    return { ok: false, problem: 'syntax' };
  }
  const value = Number(match[1]);
  switch ((match[2] ?? '').toLowerCase()) {
    case 'mib':
      return whole(value, MAX_MIB, mib => ({ milli: null, mib }));
    case 'gib':
      return whole(value * 1024, MAX_MIB, mib => ({ milli: null, mib }));
    case '%':
      return whole(value * 10, 1000, milli => ({ milli, mib: null }));
    default:
      return whole(value * 1000, 1000, milli => ({ milli, mib: null }));
  }
}

/** Whether a text asks for what is held: as much compute, or the memory. */
export function isAmount(
  text: string,
  held: Pick<GpuPool.IShare, 'milli' | 'mib'>
): boolean {
  const result = parseShare(text);
  return (
    result.ok &&
    (result.share.milli === held.milli || result.share.mib === held.mib)
  );
}

/** Writes thousandths as a person writes a share: 200 → `0.2`. */
export function formatMilli(milli: number): string {
  return String(Math.round(milli) / 1000);
}

/**
 * The same to be read, with two decimals at most: 799 → `0.8`. What is typed or
 * asked for is exact.
 */
export function formatShare(milli: number): string {
  return milli > 0 && milli < 10
    ? formatMilli(milli)
    : String(Math.round(milli / 10) / 100);
}

/** What can be had, rounded down: what is asked by these figures then fits. */
export function formatRoom(milli: number): string {
  return formatMilli(roomOf(milli));
}

/** The same, milli-GPU. */
export function roomOf(milli: number): number {
  return milli < 10 ? milli : Math.floor(milli / 10) * 10;
}

function whole(
  amount: number,
  max: number,
  share: (units: number) => IShareText
): ShareResult {
  if (amount === 0) {
    return { ok: false, problem: 'zero' };
  }
  if (amount > max) {
    return { ok: false, problem: 'too-large' };
  }
  // 0.07 × 1000 is not 70 in binary: whole means whole up to that error.
  const units = Math.round(amount);
  return units === 0 || Math.abs(amount - units) > 1e-6
    ? { ok: false, problem: 'too-fine' }
    : { ok: true, share: share(units) };
}
