import { render, screen } from '@testing-library/react';
import { FocusKeeper } from '../../components/FocusKeeper';
import { Fragment, h } from '../../ui/jsx';

function sidebar(rows: string[], keep: string | null, elsewhere = false) {
  return (
    <>
      <FocusKeeper>
        <section data-focus-group="">
          <button data-focus-home="">Kernels</button>
          {rows.map(row => (
            <div key={row} data-focus-group="">
              {row === keep ? <button>{`Keep ${row}`}</button> : null}
              <button data-focus-home="">{`Detach ${row}`}</button>
            </div>
          ))}
        </section>
      </FocusKeeper>
      {elsewhere ? <button autoFocus>Elsewhere</button> : null}
    </>
  );
}

const focused = () => document.activeElement?.textContent;

it('moves focus to the row of a button that is gone', () => {
  const { rerender } = render(sidebar(['a', 'b'], 'b'));
  screen.getByText('Keep b').focus();
  rerender(sidebar(['a', 'b'], null));
  expect(focused()).toBe('Detach b');
});

it('moves focus to the section when the row is gone too', () => {
  const { rerender } = render(sidebar(['a', 'b'], null));
  screen.getByText('Detach b').focus();
  rerender(sidebar(['a'], null));
  expect(focused()).toBe('Kernels');
});

it('moves focus nowhere when nothing is gone', () => {
  const { rerender } = render(sidebar(['a', 'b'], 'a'));
  screen.getByText('Detach b').focus();
  rerender(sidebar(['a', 'b'], null));
  expect(focused()).toBe('Detach b');
});

it('takes focus from nobody', () => {
  const { rerender } = render(sidebar(['a'], 'a'));
  screen.getByText('Keep a').focus();
  rerender(sidebar(['a'], null, true));
  expect(focused()).toBe('Elsewhere');
});
