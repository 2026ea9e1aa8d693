import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** What this is, in three sentences, until it has been read. */
export function Introduction(props: { context: IContext }): JSX.Element | null {
  const { introduction, model, trans } = props.context;
  if (!introduction?.shown) {
    return null;
  }
  const share = model.preferences.defaultShare;
  return (
    <section
      className="jp-GpuPool-introduction"
      aria-label={trans.__('Introduction')}
    >
      <p>
        {trans.__(
          'Notebooks share the GPUs of a pool: each takes a part for as long as it computes.'
        )}{' '}
        {trans.__(
          'Write %1 as the first line of a cell, or press Attach below to hold a part over several cells.',
          `%%gpu ${share}`
        )}{' '}
        {trans.__(
          'When it goes back, variables and what is in GPU memory are kept for the next time.'
        )}
      </p>
      <Button onClick={() => introduction.done()}>{trans.__('Got it')}</Button>
    </section>
  );
}
