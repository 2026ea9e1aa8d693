import type { TranslationBundle } from '@jupyterlab/translation';
import { parseShare } from '../figures/share';
import { formatBytes, formatMib } from '../text/format';

/** An allocation that a cell's share had no room for; in bytes. */
export interface IOutOfMemory {
  asked: number;
  share: number;
  used: number;
  largestFree: number;
  /** Null: nobody knew which share would have room. */
  larger: ILargerShare | null;
  /** How the cell had its share: by its `%%gpu` line, held, or by its code. */
  way: 'cell' | 'resize' | 'code';
}

export interface ILargerShare {
  /** As one writes it; null: no GPU of the pool has so much. */
  share: string | null;
  mib: number;
  /** When the cell ended. */
  free: boolean;
  count: number;
}

/**
 * Reads what a saved notebook says, which anybody may have written. Null: it
 * says nothing, or not all of it.
 */
export function readOutOfMemory(data: unknown): IOutOfMemory | null {
  if (!isObject(data)) {
    return null;
  }
  const figures = [data.asked, data.share, data.used, data.largest_free];
  if (!figures.every(isCount)) {
    return null;
  }
  const [asked, share, used, largestFree] = figures as number[];
  const way = data.way === 'resize' || data.way === 'code' ? data.way : 'cell';
  const larger = readLarger(data.larger_share);
  return { asked, share, used, largestFree, larger, way };
}

function readLarger(data: unknown): ILargerShare | null {
  if (!isObject(data) || !isCount(data.mib) || !isCount(data.count)) {
    return null;
  }
  // It becomes part of a cell's source, so it is a share or nothing.
  const share =
    typeof data.share === 'string' && parseShare(data.share).ok
      ? data.share.trim()
      : null;
  return { share, mib: data.mib, free: data.free === true, count: data.count };
}

/** What happened, in one line with its numbers. */
export function outOfMemoryText(
  lacking: IOutOfMemory,
  trans: TranslationBundle
): string {
  const said = trans.__(
    'Out of memory: %1 asked, the share has %2, %3 used (largest free piece %4).',
    formatBytes(lacking.asked),
    formatBytes(lacking.share),
    formatBytes(lacking.used),
    formatBytes(lacking.largestFree)
  );
  return lacking.larger === null
    ? said
    : `${said} ${largerText(lacking.larger, trans)}`;
}

function largerText(larger: ILargerShare, trans: TranslationBundle): string {
  const memory = formatMib(larger.mib);
  if (larger.share === null) {
    return trans.__(
      'No GPU of this pool has so much: the largest share is 1 (%1).',
      memory
    );
  }
  const amount =
    larger.count > 1
      ? trans.__('%1 × %2', larger.count, larger.share)
      : larger.share;
  return larger.free
    ? trans.__('%1 GPU (%2) was free when the cell ended.', amount, memory)
    : trans.__(
        '%1 GPU (%2) would have room, but was not free when the cell ended.',
        amount,
        memory
      );
}

/** Options of `%%gpu` that stand without a value. */
const FLAGS = new Set(['--hold', '--strict', '--exclusive']);
/** A word as a shell splits them, or a comment: what the kernel reads of the line. */
const WORD = /#.*|(?:"[^"]*"|'[^']*'|[^\s#])+/g;
/** Words behind a number that belong to it: the kernel reads `2 GiB` as one share. */
const UNIT = /^(?:[mg]i?b|%)$/i;

/**
 * The part of a cell's source to replace so that its `%%gpu` line asks for
 * `share`; null: the cell has no such line.
 */
export function shareEdit(
  source: string,
  share: string
): { start: number; end: number; text: string } | null {
  const line = /^[ \t]*%%gpu(?=[ \t]|$).*$/m.exec(source);
  if (line === null) {
    return null;
  }
  const words = [...line[0].matchAll(WORD)];
  const endOf = ({ 0: word, index }: RegExpExecArray) =>
    line.index + index + word.length;
  for (let at = 1; at < words.length; at++) {
    const [word] = words[at];
    if (word.startsWith('#')) {
      break;
    }
    if (takesValue(word)) {
      at += 1;
    } else if (!word.startsWith('-')) {
      const next = words[at + 1];
      const split = /^\d/.test(word) && next && UNIT.test(next[0]);
      return {
        start: line.index + words[at].index,
        end: endOf(split ? next : words[at]),
        text: share
      };
    }
  }
  const end = endOf(words[0]);
  return { start: end, end, text: ` ${share}` };
}

/** Whether the word behind an option is its value: not behind `--nodes=any`, `-n2` or a flag. */
function takesValue(word: string): boolean {
  return /^(?:--[^=]+|-[a-z])$/i.test(word) && !FLAGS.has(word);
}

function isObject(value: unknown): value is { [key: string]: unknown } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
