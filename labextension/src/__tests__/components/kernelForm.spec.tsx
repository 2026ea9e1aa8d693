import { fireEvent, render, screen } from '@testing-library/react';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/ids';
import { KernelForm } from '../../components/KernelForm';
import type { IContext } from '../../components/context';
import { h } from '../../ui/jsx';
import { aKernel, aQueuePlace } from '../samples';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;
let context: IContext;
let executed: [string, unknown][];

beforeEach(() => {
  fixture = new SidebarFixture();
  ({ context, executed } = fixture);
});

afterEach(() => fixture.dispose());

function form(kernel: GpuPool.IKernel) {
  return <KernelForm kernel={kernel} pending={false} context={context} />;
}

it('shows the share that waits, whatever was typed before', () => {
  const { rerender } = render(form(aKernel()));
  const input = screen.getByRole<HTMLInputElement>('textbox');
  fireEvent.change(input, { target: { value: '0.9x' } });
  const asked = { share: '0.3', count: 1, project: '' };
  const queue = aQueuePlace({ asked });
  rerender(form(aKernel({ state: 'queued', queue })));
  expect(input.value).toBe('0.3');
  expect(input.getAttribute('aria-invalid')).toBe('false');
});

it('asks for what its notebook notes, unless one says else', () => {
  const terms = { share: '0.5', count: 2 };
  context.terms = () => terms;
  render(form(aKernel()));
  const input = screen.getByRole<HTMLInputElement>('textbox');
  expect(input.value).toBe('0.5');
  fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
  fireEvent.change(input, { target: { value: '0.3' } });
  fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
  expect(executed).toEqual([
    [CommandIDs.attach, { kernelId: 'k1', quiet: true }],
    [CommandIDs.attach, { kernelId: 'k1', quiet: true, share: '0.3', count: 2 }]
  ]);
});

it.each<[GpuPool.IAttachOptions | null, string]>([
  [null, ''],
  [{ share: '0.5' }, ''],
  [{ share: '0.5', count: 2, strict: true }, ' (2 GPUs, hard cap)'],
  [{ share: '0.5', nodes: 'any', project: 'a/b' }, ' (on any nodes, a/b)']
])('says what is asked for though it is folded away (%j)', (terms, beside) => {
  context.terms = () => terms;
  render(form(aKernel()));
  const more = () => screen.getByRole('button', { name: /^More about/ });
  expect(more().textContent).toBe(`More…${beside}`);
  expect(more().getAttribute('aria-label')).toBe(
    `More about the request of train.ipynb${beside}`
  );
  fireEvent.click(more());
  expect(more().textContent).toBe('Less');
});

describe('more about what its notebook notes', () => {
  const terms: GpuPool.IAttachOptions = {
    share: '0.5',
    count: 2,
    strict: true,
    project: 'vision',
    kind: 'guaranteed',
    filters: ['memory>=40GiB']
  };
  const field = (name: RegExp) =>
    screen.getByRole<HTMLInputElement>('textbox', { name });
  const cap = () =>
    screen.getByRole<HTMLInputElement>('checkbox', { name: /^Cap/ });
  const attach = () =>
    fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));

  beforeEach(() => {
    context.terms = () => ({ ...terms });
    render(form(aKernel()));
    fireEvent.click(screen.getByRole('button', { name: /^More about/ }));
  });

  it('shows what is asked for', () => {
    expect(field(/^Number of GPUs/).value).toBe('2');
    expect(cap().checked).toBe(true);
    expect(field(/^Project/).value).toBe('vision');
    attach();
    expect(executed).toEqual([
      [CommandIDs.attach, { kernelId: 'k1', quiet: true }]
    ]);
  });

  it('is asked for as it is changed, with what is not shown', () => {
    fireEvent.click(cap());
    fireEvent.change(field(/^Number of GPUs/), { target: { value: '1' } });
    attach();
    expect(executed).toEqual([
      [
        CommandIDs.attach,
        {
          kernelId: 'k1',
          quiet: true,
          share: '0.5',
          project: 'vision',
          kind: 'guaranteed',
          filters: ['memory>=40GiB']
        }
      ]
    ]);
  });

  it('says while it is folded what goes along', () => {
    fireEvent.click(screen.getByRole('button', { name: /^More about/ }));
    expect(
      screen.getByText('More… (2 GPUs, vision, hard cap, and more)')
    ).toBeDefined();
  });

  it('names the project that counts where none is said', () => {
    fireEvent.change(field(/^Project/), { target: { value: '' } });
    expect(field(/^Project/).placeholder).toBe(
      'as the notebook notes (vision)'
    );
  });
});
