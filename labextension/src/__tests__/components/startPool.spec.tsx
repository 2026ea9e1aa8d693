import { act, fireEvent, render, screen } from '@testing-library/react';
import { CommandRegistry } from '@lumino/commands';
import { CommandIDs } from '../../commands/ids';
import { replacesProblem, StartPool } from '../../components/StartPool';
import type { IContext } from '../../components/context';
import { EMPTY_STATE } from '../../model/reduce';
import { h } from '../../ui/jsx';
import { aPool } from '../samples';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;
let context: IContext;
let answer: () => Promise<void>;
let asked: number;

beforeEach(() => {
  fixture = new SidebarFixture();
  const commands = new CommandRegistry();
  asked = 0;
  commands.addCommand(CommandIDs.startPool, {
    execute: () => {
      asked += 1;
      return answer();
    }
  });
  context = { ...fixture.context, commands };
});

afterEach(() => fixture.dispose());

const startable = {
  ...EMPTY_STATE,
  pool: aPool({ ok: false, startable: 'lends', devices: [] })
};

it('offers nothing where a pool is configured', () => {
  const state = { ...EMPTY_STATE, pool: aPool() };
  const { container } = render(<StartPool state={state} context={context} />);
  expect(container.textContent).toBe('');
  expect(replacesProblem(state)).toBe(false);
});

it('says whose GPUs it would have', () => {
  const shown = render(<StartPool state={startable} context={context} />);
  screen.getByText(/^One on this machine lends its NVIDIA GPUs/);
  shown.unmount();
  const pool = aPool({ ok: false, startable: 'borrows', devices: [] });
  render(<StartPool state={{ ...EMPTY_STATE, pool }} context={context} />);
  screen.getByText(/borrows GPUs as your own jobs/);
});

it('starts one, once, and says so meanwhile', async () => {
  let done = () => {};
  answer = () =>
    new Promise(resolve => {
      done = resolve;
    });
  render(<StartPool state={startable} context={context} />);
  fireEvent.click(screen.getByRole('button', { name: 'Start a pool here' }));
  fireEvent.click(
    await screen.findByRole('button', { name: 'Starting a pool…' })
  );
  expect(asked).toBe(1);
  await act(async () => done());
  screen.getByRole('button', { name: 'Start a pool here' });
});

it('says why none could be started, and lets one try again', async () => {
  answer = () => Promise.reject(new Error('the node ended while starting'));
  render(<StartPool state={startable} context={context} />);
  fireEvent.click(screen.getByRole('button', { name: 'Start a pool here' }));
  await screen.findByText('the node ended while starting');
  expect(screen.getByRole('alert').textContent).toMatch(/^the node/);
  answer = () => Promise.resolve();
  fireEvent.click(screen.getByRole('button', { name: 'Start a pool here' }));
  await act(async () => undefined);
  expect(screen.getByRole('alert').textContent).toBe('');
  expect(asked).toBe(2);
});

it('stands in the place of the complaint about the address', () => {
  const problem = { kind: 'setting', message: 'x' } as const;
  expect(replacesProblem({ ...startable, problem })).toBe(true);
  expect(
    replacesProblem({ ...startable, problem: { kind: 'pool', message: 'x' } })
  ).toBe(false);
});
