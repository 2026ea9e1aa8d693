import { templateOf } from '../api/catalogue';
import type { GpuPool } from '../api/types';
import { formatMilli, formatRoom, formatShare } from '../figures/share';

/*
 * The words of the pool's sentences, by the templates that the pool renders
 * them with too (server/gpupool/sentences/render.py); the server hands them out.
 */

const PLACE = /\{(\w+)(?::(\w+))?\}/g;
/** What stands between the items of a list, by style. */
const BETWEEN: { readonly [style: string]: string } = {
  '': ', ',
  clauses: '; ',
  and: ' and ',
  words: ' '
};

/**
 * The words. A name that was left out becomes `another user`; of an id without
 * words, the id stands for itself.
 */
export function render(sentence: GpuPool.ISentence): string {
  if (sentence.code === '') {
    return '';
  }
  const { params } = sentence;
  return template(sentence).replace(PLACE, (_, name: string, style?: string) =>
    name in params ? shown(params[name], style ?? '') : ''
  );
}

/** Whether there are words for it. */
export function isKnown(code: string): boolean {
  return templateOf(code) !== undefined;
}

/** What it says first: of several clauses the first one, else all. */
export function firstClause(sentence: GpuPool.ISentence): string {
  const { of } = sentence.params;
  return sentence.code === 'clauses' && of?.kind === 'list'
    ? shown(of.value[0], '')
    : render(sentence);
}

/** Without what would help, where that stands beside it. */
export function withoutHelps(sentence: GpuPool.ISentence): string {
  const { of } = sentence.params;
  if (sentence.code !== 'clauses' || of?.kind !== 'list') {
    return render(sentence);
  }
  const value = of.value.filter(
    part => part.kind !== 'sentence' || !part.value.code.startsWith('help.')
  );
  return shown({ kind: 'list', value }, 'clauses');
}

function template(sentence: GpuPool.ISentence): string {
  const found = templateOf(sentence.code) ?? sentence.code;
  if (typeof found === 'string') {
    return found;
  }
  return sentence.params[found.by]?.value === 1 ? found.one : found.other;
}

function shown(param: GpuPool.Param, style: string): string {
  switch (param.kind) {
    case 'milli':
      return milli(param.value, style);
    case 'mib':
      return mib(param.value, style);
    case 'seconds':
      return seconds(param.value, style);
    case 'number':
      return number(param.value, style);
    case 'count':
      return `${param.value}`;
    case 'user':
      return param.value === ''
        ? 'another user'
        : style === 'named'
          ? `user ${param.value}`
          : param.value;
    case 'sentence':
      return render(param.value);
    case 'list':
      return param.value
        .map(item => shown(item, ''))
        .filter(text => text !== '')
        .join(BETWEEN[style]);
    default:
      return param.value;
  }
}

function milli(value: number, style: string): string {
  const text = rounding(value, style);
  if (style === 'short' || style === 'least' || style === 'written') {
    return text;
  }
  if (style === 'gpus') {
    return value === 1000 ? `${text} GPU` : `${text} GPUs`;
  }
  const [whole, fraction = ''] = text.split('.');
  return `${whole}.${fraction.padEnd(2, '0')}`;
}

/**
 * Two decimals at most. Room is rounded down and what is lacking up, so that
 * what is asked then fits; what somebody has written or set is as it was written.
 */
function rounding(value: number, style: string): string {
  switch (style) {
    case 'left':
      return formatRoom(value);
    case 'lacking':
    case 'least':
      return formatMilli(value < 10 ? value : Math.ceil(value / 10) * 10);
    case 'set':
    case 'written':
      return formatMilli(value);
    default:
      return formatShare(value);
  }
}

function mib(value: number, style: string): string {
  if (style === 'bare') {
    return `${value}`;
  }
  if (style === 'share') {
    return `${value}MiB`;
  }
  if (style === 'memory' && value >= 1024) {
    return `${tenths(Math.floor((value * 10 + 512) / 1024))} GiB`;
  }
  return `${value} MiB`;
}

function seconds(value: number, style: string): string {
  const whole = rounded(value);
  if (style === 'exact') {
    return `${exact(value)} s`;
  }
  if (style === 'tenths') {
    return `${tenths(rounded(value * 10))} s`;
  }
  if (style !== 'long' || whole < 120) {
    return `${whole} s`;
  }
  const minutes = Math.ceil(whole / 60);
  return minutes >= 60
    ? `${Math.floor(minutes / 60)} h ${minutes % 60} min`
    : `${minutes} min`;
}

function number(value: number, style: string): string {
  if (style === 'gpu_time') {
    return gpuTime(value);
  }
  return `${rounded(value)}`;
}

function gpuTime(gpuSeconds: number): string {
  const whole = rounded(gpuSeconds);
  if (whole < 7200) {
    return whole < 120
      ? `${whole} GPU second${whole === 1 ? '' : 's'}`
      : `${rounded(whole / 60)} GPU minutes`;
  }
  const hours = rounded(whole / 360);
  return `${hours % 10 ? tenths(hours) : hours / 10} GPU hours`;
}

function tenths(value: number): string {
  return `${Math.floor(value / 10)}.${value % 10}`;
}

function rounded(value: number): number {
  return Math.floor(value + 0.5);
}

/** Six significant digits at most. */
function exact(value: number): string {
  return `${Number.isInteger(value) ? value : Number(value.toPrecision(6))}`;
}
