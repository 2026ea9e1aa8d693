import type { TranslationBundle } from '@jupyterlab/translation';
import type { GpuPool } from '../api/types';

/** Of an id such as `vm/0`: its node and its number there. */
const ID = /^(.+)\/(\d+)$/;

/** `GPU 0 on vm`; an id of another kind stands for itself. */
export function deviceName(id: string, trans: TranslationBundle): string {
  const match = ID.exec(id);
  return match ? trans.__('GPU %1 on %2', match[2], match[1]) : id;
}

/** `GPU 0`, where its node is said beside it. */
export function deviceOfNode(
  device: Pick<GpuPool.IDevice, 'id' | 'node'>,
  trans: TranslationBundle
): string {
  const match = ID.exec(device.id);
  return match && match[1] === device.node
    ? trans.__('GPU %1', match[2])
    : device.id;
}

/** `GPU 0 and 1 on vm`; of several nodes `GPU 0 on a, GPU 3 on b`. */
export function deviceNames(
  ids: readonly string[],
  trans: TranslationBundle
): string {
  const byNode = new Map<string, string[]>();
  const others: string[] = [];
  for (const id of ids) {
    const match = ID.exec(id);
    if (match) {
      byNode.set(match[1], [...(byNode.get(match[1]) ?? []), match[2]]);
    } else {
      others.push(id);
    }
  }
  const named = [...byNode].map(([node, numbers]) =>
    trans.__('GPU %1 on %2', numbers.join(trans.__(' and ')), node)
  );
  return [...named, ...others].join(', ');
}
