import type {
  ReadonlyJSONObject,
  ReadonlyPartialJSONObject
} from '@lumino/coreutils';
import { REQUEST_OPTIONS } from '../api/request';
import type { GpuPool } from '../api/types';

/*
 * What the commands take: schemas for `describedBy`, which menus, tools and
 * assistants read, and readers for what comes. A reader ignores what it does
 * not know: who calls a command is not always this package.
 */

/** Arguments that all commands about a kernel take. */
const KERNEL_ID = {
  type: 'string',
  description: 'Id of the kernel; the current document’s kernel if left out.'
} as const;

const QUIET = {
  type: 'boolean',
  description: 'Do not show a notification on failure; the caller shows it.'
} as const;

/** How much, how long it waits, and all else that a request may say. */
export const { share: SHARE, wait: WAIT, ...TERMS } = REQUEST_OPTIONS;

/** What is said of an option in its schema. */
interface IOption {
  readonly type: string;
  readonly enum?: readonly string[];
}

/** The schema of a command about a kernel. */
export function kernelSchema(properties: ReadonlyJSONObject = {}): {
  args: ReadonlyJSONObject;
} {
  return plainSchema({ kernelId: KERNEL_ID, quiet: QUIET, ...properties });
}

/** The schema of a command that is about no kernel, or about all. */
export function plainSchema(properties: ReadonlyJSONObject = {}): {
  args: ReadonlyJSONObject;
} {
  return { args: { type: 'object', properties } };
}

export function textOf(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value : otherwise;
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value)
    ? value
    : undefined;
}

function textsOf(value: unknown): string[] | undefined {
  return Array.isArray(value) && value.every(text => typeof text === 'string')
    ? value
    : undefined;
}

/** The value of an option if it is one; switches that are off, and empty texts, say nothing. */
function valueOf(option: IOption, value: unknown): unknown {
  switch (option.type) {
    case 'boolean':
      return value === true ? true : undefined;
    case 'integer':
    case 'number':
      return numberOf(value);
    case 'array':
      return textsOf(value);
    default: {
      const text = textOf(value, '').trim();
      return option.enum?.includes(text) === false || text === ''
        ? undefined
        : text;
    }
  }
}

/** The terms of a request among the arguments; what is not said is left out. */
export function termsOf(
  args: ReadonlyPartialJSONObject
): Omit<GpuPool.IAttachOptions, 'share' | 'wait'> {
  const terms: [string, IOption][] = Object.entries(TERMS);
  return Object.fromEntries(
    terms
      .map(([name, option]) => [name, valueOf(option, args[name])] as const)
      .filter(([, value]) => value !== undefined)
  );
}
