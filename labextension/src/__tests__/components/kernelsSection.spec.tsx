import { fireEvent, render, screen, within } from '@testing-library/react';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/ids';
import { KernelsSection } from '../../components/KernelsSection';
import type { IContext } from '../../components/context';
import { EMPTY_STATE } from '../../model/reduce';
import { h } from '../../ui/jsx';
import { aKernel, anAttachedKernel, aPool, aWarnedKernel } from '../samples';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;
let context: IContext;

beforeEach(() => {
  fixture = new SidebarFixture();
  context = fixture.context;
});

afterEach(() => fixture.dispose());

function section(kernels: GpuPool.IKernel[], failed: string[] = []) {
  const state = {
    ...EMPTY_STATE,
    ready: true,
    pool: aPool(),
    kernels,
    failures: new Map(failed.map(id => [id, 'not free']))
  };
  return <KernelsSection state={state} context={context} />;
}

/** `count` kernels that never had a GPU. */
function bare(count: number): GpuPool.IKernel[] {
  return Array.from({ length: count }, (_, index) =>
    aKernel({ kernel_id: `b${index}`, label: `bare${index}.ipynb` })
  );
}

function names(list = 'Kernels'): (string | null)[] {
  return within(screen.getByRole('list', { name: list }))
    .getAllByRole('listitem')
    .map(item => item.getAttribute('aria-label'))
    .filter(name => name !== null);
}

it('has the notebook in front first, marked, with all that is known', () => {
  context.front = () => 'b1';
  render(section([...bare(3), anAttachedKernel({ label: 'held.ipynb' })]));
  expect(names()).toEqual([
    'bare1.ipynb',
    'held.ipynb',
    'bare0.ipynb',
    'bare2.ipynb'
  ]);
  const front = screen.getByRole('listitem', { name: 'bare1.ipynb' });
  within(front).getByText('in front');
  within(front).getByRole('textbox');
  expect(screen.getAllByRole('textbox')).toHaveLength(1);
  screen.getByText('1 of 4 have a GPU');
});

it('gives what wants nothing one line, which can be unfolded', () => {
  context.front = () => 'b0';
  render(section([...bare(4), anAttachedKernel({ label: 'held.ipynb' })]));
  const line = screen.getByRole('listitem', { name: 'held.ipynb' });
  expect(line.textContent).toBe('held.ipynb0.240 % busyDetach');
  // How busy it is changes at each poll, and is not read out each time.
  expect(within(line).getByRole('status').textContent).toBe('0.2');
  fireEvent.click(
    within(line).getByRole('button', { name: 'More about held.ipynb' })
  );
  const row = screen.getByRole('listitem', { name: 'held.ipynb' });
  within(row).getByRole('slider');
  fireEvent.click(
    within(row).getByRole('button', { name: 'Less about held.ipynb' })
  );
  expect(screen.queryByRole('slider')).toBeNull();
});

it('keeps the focus of whoever unfolds and folds by key', () => {
  context.front = () => 'b0';
  const kernels = [...bare(4), anAttachedKernel({ label: 'held.ipynb' })];
  const { rerender } = render(section(kernels));
  const focused = () => document.activeElement?.getAttribute('aria-label');
  const press = (name: string) => {
    const button = screen.getByRole('button', { name });
    button.focus();
    fireEvent.click(button);
  };
  press('More about held.ipynb');
  expect(focused()).toBe('Less about held.ipynb');
  press('Less about held.ipynb');
  expect(focused()).toBe('More about held.ipynb');
  // A caret that comes for another reason takes the focus from nobody.
  screen.getByRole('button', { name: 'Attach a GPU to bare1.ipynb' }).focus();
  const warned = aWarnedKernel(30, { label: 'held.ipynb' });
  rerender(section([...bare(4), warned]));
  rerender(section(kernels));
  screen.getByRole('button', { name: 'More about held.ipynb' });
  expect(focused()).toBe('Attach a GPU to bare1.ipynb');
});

it('attaches and detaches from a line', () => {
  context.front = () => null;
  render(section([...bare(3), anAttachedKernel({ label: 'held.ipynb' })]));
  fireEvent.click(
    screen.getByRole('button', { name: 'Attach a GPU to bare2.ipynb' })
  );
  fireEvent.click(
    screen.getByRole('button', { name: 'Detach the GPU from held.ipynb' })
  );
  expect(fixture.executed).toEqual([
    [CommandIDs.attach, { kernelId: 'b2', quiet: true }],
    [CommandIDs.detach, { kernelId: 'k1', quiet: true }]
  ]);
});

it('shows all of what warns, waits or was refused, wherever it is', () => {
  context.front = () => 'b0';
  render(
    section(
      [
        ...bare(6),
        aWarnedKernel(30, { kernel_id: 'w', label: 'warned.ipynb' }),
        aKernel({ kernel_id: 'q', label: 'queued.ipynb', state: 'queued' })
      ],
      ['b5']
    )
  );
  expect(names()).toEqual([
    'bare0.ipynb',
    'bare5.ipynb',
    'warned.ipynb',
    'queued.ipynb',
    // One line each.
    'bare1.ipynb',
    'bare2.ipynb',
    'bare3.ipynb',
    'bare4.ipynb'
  ]);
  expect(screen.getAllByRole('textbox')).toHaveLength(4);
  screen.getByRole('timer');
  screen.getByText('not free');
});

it('puts many kernels without a GPU behind one line', () => {
  context.front = () => 'b0';
  render(section([...bare(11), anAttachedKernel({ label: 'held.ipynb' })]));
  expect(names()).toEqual(['bare0.ipynb', 'held.ipynb']);
  const more = screen.getByRole('button', {
    name: '10 kernels without a GPU'
  });
  expect(more.getAttribute('aria-expanded')).toBe('false');
  fireEvent.click(more);
  expect(names('Kernels without a GPU')).toHaveLength(10);
});

it.each([
  ['pool', /^No kernel runs/],
  ['setting', /^No kernel runs/],
  ['server', /when the server answers/],
  ['missing', /when the server answers/]
] as const)('says of no kernel what is known (%s)', (kind, text) => {
  const problem = { kind, message: '' };
  const state = { ...EMPTY_STATE, ready: true, problem };
  render(<KernelsSection state={state} context={context} />);
  screen.getByText(text);
});

it('says of a kernel without a GPU that its memory is kept', () => {
  context.front = () => 'b0';
  const parked = aKernel({
    kernel_id: 'p',
    label: 'parked.ipynb',
    state: 'parked',
    reason: 'exit'
  });
  render(section([...bare(1), parked]));
  const line = screen.getByRole('listitem', { name: 'parked.ipynb' });
  expect(within(line).getByRole('status').textContent).toBe('memory kept');
});
