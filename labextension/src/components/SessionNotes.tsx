import type { GpuPool } from '../api/types';
import { noteOf } from '../figures/rows';
import { render } from '../text/sentence';
import { enforcementText, memoryText } from '../text/words';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/**
 * What else is true of a kernel's session: where its memory lies, what
 * cannot be done with it, how its share is kept.
 */
export function SessionNotes(props: {
  kernel: GpuPool.IKernel;
  context: IContext;
}): JSX.Element | null {
  const { kernel, context } = props;
  const { trans } = context;
  // A note of its own says what was kept, and where.
  const place = noteOf(kernel) !== null ? null : memoryText(kernel, trans);
  // How any other share is kept is no news: the line above has it as a tooltip.
  const enforcement = kernel.memory?.strict
    ? enforcementText(kernel, trans)
    : null;
  const obstacles = kernel.memory?.obstacles ?? [];
  if (place === null && enforcement === null && obstacles.length === 0) {
    return null;
  }
  return (
    <ul
      className="jp-GpuPool-notes"
      aria-label={trans.__('Session of %1', kernel.label)}
    >
      {place === null ? null : <li data-kind="place">{place}</li>}
      {enforcement === null ? null : (
        <li data-kind="enforcement">{enforcement}</li>
      )}
      {obstacles.map(render).map(sentence => (
        <li key={sentence} data-kind="obstacle">
          {sentence}
        </li>
      ))}
    </ul>
  );
}
