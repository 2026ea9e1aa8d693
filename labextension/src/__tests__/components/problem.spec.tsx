import { fireEvent, render, screen } from '@testing-library/react';
import { CommandIDs } from '../../commands/ids';
import { Problem } from '../../components/Problem';
import type { IContext } from '../../components/context';
import { EMPTY_STATE } from '../../model/reduce';
import { h } from '../../ui/jsx';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;
let context: IContext;
let executed: [string, unknown][];

beforeEach(() => {
  fixture = new SidebarFixture();
  ({ context, executed } = fixture);
});

afterEach(() => fixture.dispose());

it.each([
  ['pool', '', /GPU pool does not answer/],
  ['pool', 'Nobody at unix:/p.', /^Nobody at unix:\/p\./],
  [
    'setting',
    'It is x.token_file.',
    /cannot ask the pool: It is x\.token_file/
  ],
  ['server', 'Failed to fetch', /Jupyter server does not answer.*Failed/],
  ['missing', '404', /jupyter server extension enable/]
] as const)(
  'says what to do about a problem (%s, %p)',
  (kind, message, text) => {
    render(
      <Problem
        problem={{ kind, message }}
        state={EMPTY_STATE}
        context={context}
      />
    );
    expect(screen.getByRole('alert').textContent).toMatch(text);
    fireEvent.click(screen.getByRole('button', { name: 'Retry now' }));
    expect(executed.map(([id]) => id)).toEqual([CommandIDs.refresh]);
  }
);

it.each([
  [
    200,
    'Another page came in place of the Jupyter server’s answer: reload this page to log in.'
  ],
  [401, 'The Jupyter server refuses (401): reload the page to log in.'],
  [403, 'The Jupyter server refuses (403): reload the page to log in.'],
  [500, 'The Jupyter server answers with an error (500).'],
  [424, 'The Jupyter server does not answer.'],
  [502, 'The Jupyter server does not answer.'],
  [0, 'The Jupyter server does not answer.']
])('says of a Jupyter server what came from it (%p)', (status, sentence) => {
  const problem = { kind: 'server', message: 'why', status } as const;
  render(<Problem problem={problem} state={EMPTY_STATE} context={context} />);
  expect(screen.getByRole('alert').textContent).toBe(`${sentence}why`);
});

describe('a pool that does not answer', () => {
  const at = (hour: number, minute: number) =>
    new Date(2026, 10, 22, hour, minute).getTime();
  const problem = { kind: 'pool', message: 'Nobody at unix:/p.' } as const;

  it('is said with since when, what is known, and what goes on', () => {
    const state = {
      ...EMPTY_STATE,
      problem,
      problemSince: at(9, 31),
      poolAt: at(9, 30)
    };
    render(<Problem problem={problem} state={state} context={context} />);
    const time = (hour: number, minute: number) =>
      new Date(at(hour, minute)).toLocaleTimeString();
    screen.getByText(
      `Since ${time(9, 31)}. Devices and queue are shown as they were at ${time(9, 30)}.`
    );
    screen.getByText(/^Notebooks run on\./);
    // What stays the same must not be read out again and again.
    expect(screen.getByRole('alert').textContent).toBe('Nobody at unix:/p.');
  });

  it('promises nothing about a state that was never known', () => {
    const state = { ...EMPTY_STATE, problem, problemSince: at(9, 31) };
    render(<Problem problem={problem} state={state} context={context} />);
    expect(screen.queryByText(/as they were/)).toBeNull();
  });
});
