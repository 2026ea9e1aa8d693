import { render, screen } from '@testing-library/react';
import { learn } from '../../api/catalogue';
import { QueueSection } from '../../components/QueueSection';
import type { IContext } from '../../components/context';
import { EMPTY_STATE } from '../../model/reduce';
import { h } from '../../ui/jsx';
import { CATALOGUE } from '../catalogue';
import { aPool, aQueueEntry, words } from '../samples';
import { SidebarFixture } from '../sidebarFixture';

learn(CATALOGUE);

let fixture: SidebarFixture;
let context: IContext;

beforeEach(() => {
  fixture = new SidebarFixture();
  ({ context } = fixture);
});

afterEach(() => fixture.dispose());

describe('the queue', () => {
  const entry = aQueueEntry();

  it('says who waits for what, and why', () => {
    const state = { ...EMPTY_STATE, pool: aPool({ queue: [entry] }) };
    render(<QueueSection state={state} context={context} />);
    screen.getByText('0.8 GPU');
    screen.getByText('6.2 GiB · 0.5 of 0.8 is free · about 90 s to wait');
    expect(screen.queryByRole('button', { name: /^Cancel/ })).toBeNull();
  });

  it('names those whom the pool hides', () => {
    const hidden = aQueueEntry({ user: '', label: '' });
    const state = { ...EMPTY_STATE, pool: aPool({ queue: [hidden] }) };
    render(<QueueSection state={state} context={context} />);
    screen.getByRole('listitem', { name: 'another user' });
  });

  it('does not repeat what stands in the row of a kernel', () => {
    const own = aQueueEntry({ mine: true, kernel_id: 'k9' });
    const state = { ...EMPTY_STATE, pool: aPool({ queue: [own] }) };
    render(<QueueSection state={state} context={context} />);
    expect(screen.getByRole('listitem').textContent).toBe(
      '1big.ipynb (you)0.8 GPU'
    );
  });

  it('says what would help an own request that was made elsewhere', () => {
    const explanation = {
      reason: 'full',
      said: words('0.8 is asked for.'),
      facts: {},
      helps: [
        {
          action: 'smaller',
          said: words('0.5 would fit now'),
          request: null,
          kernels: []
        }
      ],
      project: '',
      place: 1,
      eta_seconds: null
    };
    const show = (mine: boolean) => {
      const queue = [aQueueEntry({ mine, explanation })];
      const state = { ...EMPTY_STATE, pool: aPool({ queue }) };
      return <QueueSection state={state} context={context} />;
    };
    const { rerender } = render(show(true));
    screen.getByRole('list', { name: 'What would help big.ipynb' });
    rerender(show(false));
    expect(screen.queryByText('0.5 would fit now')).toBeNull();
  });

  it('says how many more wait than it is told of', () => {
    const pool = aPool({ queue: [entry], queue_left_out: 41 });
    render(<QueueSection state={{ ...EMPTY_STATE, pool }} context={context} />);
    screen.getByText('42 waiting');
    screen.getByText('41 more wait, behind these.');
  });

  it('says that it is not known where the pool does not say', () => {
    const pool = aPool({ queue: [], queue_left_out: null });
    render(<QueueSection state={{ ...EMPTY_STATE, pool }} context={context} />);
    screen.getByText('The queue is not known now.');
  });

  it('says that nobody waits only when the pool says so', () => {
    const show = (ok: boolean) => (
      <QueueSection
        state={{ ...EMPTY_STATE, pool: aPool({ ok }) }}
        context={context}
      />
    );
    const { rerender } = render(show(true));
    screen.getByText('Nobody waits.');
    rerender(show(false));
    screen.getByText('The queue is not known now.');
  });
});
