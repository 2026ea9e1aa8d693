import type {
  ReadonlyJSONObject,
  ReadonlyPartialJSONObject
} from '@lumino/coreutils';
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

export const SHARE = {
  type: 'string',
  description: 'A share of one GPU: 0.2, 20%, 2560MiB or 2.5GiB.'
} as const;

/** Of a request, beside how much. */
export const TERMS = {
  count: {
    type: 'integer',
    minimum: 1,
    description: 'How many GPUs, each with that share.'
  },
  nodes: {
    type: 'string',
    enum: ['auto', 'one', 'any'],
    description:
      'Where several GPUs may lie: on one node if one can serve it, on one, or on any.'
  },
  strict: {
    type: 'boolean',
    description:
      'Cap compute at the share, also while nobody else wants the GPU.'
  },
  project: {
    type: 'string',
    description:
      'The project whose quota it counts against, such as research/vision.'
  },
  kind: {
    type: 'string',
    enum: ['interactive', 'guaranteed', 'preemptible'],
    description: 'Whether the GPU may be taken back for others.'
  },
  priority: {
    type: 'integer',
    minimum: 0,
    maximum: 1000,
    description: 'Higher goes first among the requests of one project.'
  },
  filters: {
    type: 'array',
    items: { type: 'string' },
    description: 'Conditions that the GPU must meet, such as memory>=40GiB.'
  },
  node_pools: {
    type: 'array',
    items: { type: 'string' },
    description: 'Node pools that the GPU may come from.'
  }
} as const;

export const WAIT = {
  type: 'number',
  description: 'Seconds to wait in the queue; 0: not at all, -1: without end.'
} as const;

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

/** The terms of a request among the arguments; what is not said is left out. */
export function termsOf(
  args: ReadonlyPartialJSONObject
): Omit<GpuPool.IAttachOptions, 'share' | 'wait'> {
  const nodes = textOf(args.nodes, '');
  const terms = {
    count: numberOf(args.count),
    nodes:
      nodes === 'auto' || nodes === 'one' || nodes === 'any'
        ? nodes
        : undefined,
    strict: args.strict === true ? true : undefined,
    project: textOf(args.project, '').trim() || undefined,
    kind: textOf(args.kind, '') || undefined,
    priority: numberOf(args.priority),
    filters: textsOf(args.filters),
    node_pools: textsOf(args.node_pools)
  } as const;
  return Object.fromEntries(
    Object.entries(terms).filter(([, value]) => value !== undefined)
  );
}
