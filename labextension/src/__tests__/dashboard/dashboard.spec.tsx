import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import {
  act,
  fireEvent,
  render,
  screen,
  waitFor,
  within
} from '@testing-library/react';
import { mean, rowsOf } from '../../dashboard/Chart';
import { Page } from '../../dashboard/Dashboard';
import type { IDashboardContext } from '../../dashboard/context';
import { DashboardCommandIDs } from '../../dashboard/ids';
import { DashboardModel } from '../../dashboard/model';
import { linkTo, placeOf, type IPlace } from '../../dashboard/place';
import * as plot from '../../dashboard/plot';
import { h } from '../../ui/jsx';
import { aMember, anAdministration, aSeries } from '../dashboardSamples';

// There is no canvas here; what is drawn is looked at in a real browser.
jest.mock('../../dashboard/plot', () => ({
  ...jest.requireActual('../../dashboard/plot'),
  loadLibrary: jest.fn(async () => class {}),
  drawPlot: jest.fn(() => ({
    update: jest.fn(),
    resize: jest.fn(),
    dispose: jest.fn()
  }))
}));

/** The routes, answered from memory. */
class Api implements DashboardModel.Api {
  calls: string[] = [];
  down: Error | null = null;
  series = aSeries();
  administered = anAdministration();

  async history(place: IPlace) {
    this.calls.push(`history ${place.view}/${place.name} by ${place.by}`);
    if (this.down) {
      throw this.down;
    }
    return this.series;
  }

  async administration() {
    this.calls.push('administration');
    return this.administered;
  }

  async drain(node: string, drained: boolean, reason: string, evict: boolean) {
    this.calls.push(`drain ${node} ${drained} ${reason} ${evict}`);
    return this.administered.nodes[0];
  }

  async setQuota(path: string, change: object) {
    this.calls.push(`quota ${path} ${JSON.stringify(change)}`);
    return this.administered.projects[0];
  }
}

let api: Api;
let model: DashboardModel;
let context: IDashboardContext;
let executed: [string, unknown][];
let themeChanged: Signal<object, void>;

function at(given: object): DashboardModel {
  model?.dispose();
  model = new DashboardModel(api, placeOf({ ...given }), { standby: 'never' });
  context = { ...context, model };
  return model;
}

/** The next question about the history is answered when the test says so. */
function holdHistory(): () => void {
  let answer!: () => void;
  const slow = new Promise<void>(resolve => {
    answer = resolve;
  });
  jest.spyOn(api, 'history').mockImplementationOnce(async () => {
    await slow;
    return api.series;
  });
  return answer;
}

async function shown(given: object) {
  at(given);
  await model.refresh();
  return render(<Page state={model.state} context={context} />);
}

beforeAll(() => {
  global.ResizeObserver = class {
    observe() {}
    unobserve() {}
    disconnect() {}
  };
});

beforeEach(() => {
  api = new Api();
  executed = [];
  themeChanged = new Signal<object, void>({});
  const commands = new CommandRegistry();
  for (const id of Object.values(DashboardCommandIDs)) {
    commands.addCommand(id, { execute: args => executed.push([id, args]) });
  }
  context = {
    model,
    commands,
    trans: nullTranslator.load('jupyter_gpupool'),
    link: place => linkTo(place, 'http://lab.test/lab'),
    themeChanged
  };
});

afterEach(() => {
  model.dispose();
  jest.clearAllMocks();
});

describe('the model', () => {
  it('asks only while it is shown', async () => {
    at({});
    expect(api.calls).toEqual([]);
    model.show(true);
    await waitFor(() => expect(model.state.series).not.toBeNull());
    const asked = api.calls.length;
    model.show(false);
    model.go(placeOf({ view: 'node', name: 'vm' }));
    await new Promise(resolve => setTimeout(resolve, 20));
    expect(api.calls).toHaveLength(asked);
    model.show(true);
    await waitFor(() =>
      expect(api.calls).toContain('history node/vm by device')
    );
  });

  it('shows nothing of the place before', async () => {
    at({});
    await model.refresh();
    model.go(placeOf({ view: 'user', name: 'ann' }));
    expect(model.state.series).toBeNull();
    expect(model.state.place.name).toBe('ann');
  });

  it('keeps what it knows while the pool is away, and says so', async () => {
    at({});
    await model.refresh();
    api.down = new Error('the GPU pool at unix:/x does not answer');
    await model.refresh();
    expect(model.state.series).not.toBeNull();
    expect(model.state.problem).toContain('does not answer');
    api.down = null;
    await model.refresh();
    expect(model.state.problem).toBeNull();
  });

  it('asks for nodes and projects where they are shown', async () => {
    at({ view: 'quotas' });
    await model.refresh();
    expect(api.calls).toEqual(['administration']);
  });

  it('looks again after each change', async () => {
    at({ view: 'quotas' });
    await model.drain('vm', true, 'fans', true);
    await model.setQuota('research', { weight: 2 });
    expect(api.calls).toEqual([
      'drain vm true fans true',
      'administration',
      'quota research {"weight":2}',
      'administration'
    ]);
  });
});

describe('the page', () => {
  it('has a chart for each figure, named and summed up in words', async () => {
    await shown({});
    expect(screen.getAllByRole('img')).toHaveLength(5);
    expect(screen.getAllByRole('img')[0].getAttribute('aria-label')).toBe(
      'Compute. capacity: now 2 GPU, at most 2 GPU; allocated: now 0.5 GPU, at most 0.5 GPU; used: now 0.1 GPU, at most 0.1 GPU.'
    );
    await waitFor(() => expect(plot.drawPlot).toHaveBeenCalledTimes(5));
  });

  it('draws anew when the theme changes, and not after its end', async () => {
    const page = await shown({});
    await waitFor(() => expect(plot.drawPlot).toHaveBeenCalledTimes(5));
    act(() => themeChanged.emit());
    await waitFor(() => expect(plot.drawPlot).toHaveBeenCalledTimes(10));
    page.unmount();
    themeChanged.emit();
    await new Promise(resolve => setTimeout(resolve, 50));
    expect(plot.drawPlot).toHaveBeenCalledTimes(10);
  });

  it('tries again with the next figures where charts could not be loaded', async () => {
    const load = jest.mocked(plot.loadLibrary);
    load.mockImplementation(async () => Promise.reject(new Error('offline')));
    const page = await shown({});
    expect(await screen.findAllByRole('alert')).toHaveLength(5);
    expect(screen.queryByRole('img')).toBeNull();
    load.mockImplementation(async () => class {} as never);
    api.series = aSeries();
    await model.refresh();
    page.rerender(<Page state={model.state} context={context} />);
    expect(await screen.findAllByRole('img')).toHaveLength(5);
    expect(screen.queryByRole('alert')).toBeNull();
    expect(plot.drawPlot).toHaveBeenCalledTimes(5);
  });

  it('has the same numbers as a table', async () => {
    await shown({ view: 'user', name: 'ann' });
    const button = screen.getByRole('button', { name: 'Compute as a table' });
    fireEvent.click(button);
    expect(button.getAttribute('aria-pressed')).toBe('true');
    const figure = screen.getByRole('region', { name: 'Compute' });
    const rows = within(figure)
      .getAllByRole('row')
      .map(row => within(row).queryAllByRole('cell'))
      .map(cells => cells.map(cell => cell.textContent));
    expect(rows).toEqual([
      [],
      ['–', '–'],
      ['0.2 GPU', '0.05 GPU'],
      ['0.5 GPU', '0.1 GPU']
    ]);
  });

  it('leads on by links that carry their address', async () => {
    await shown({ range: '7d' });
    const node = screen.getByRole('link', { name: 'vm' });
    expect(node.getAttribute('href')).toBe(
      'http://lab.test/lab?gpupool=node%2Fvm&gpupool-range=7d'
    );
    fireEvent.click(node);
    expect(executed).toEqual([
      [
        DashboardCommandIDs.open,
        { view: 'node', name: 'vm', range: '7d', by: 'device' }
      ]
    ]);
    expect(
      screen.getByRole('link', { current: 'page', name: 'Cluster' })
    ).toBeTruthy();
  });

  it('leaves a click with Ctrl to the browser', async () => {
    await shown({});
    const link = screen.getByRole('link', { name: 'vm' });
    link.addEventListener('click', event => event.preventDefault());
    fireEvent.click(link, { ctrlKey: true });
    expect(executed).toEqual([]);
  });

  it('names clients by what they run, and others not at all', async () => {
    api.series = aSeries({
      members: [
        aMember('0123456789abcdef', { user: 'ann', label: 'a.ipynb' }),
        aMember('(others)')
      ]
    });
    await shown({ view: 'client' });
    expect(
      screen.getByRole('link', { name: 'a.ipynb (01234567)' })
    ).toBeTruthy();
    expect(screen.getByText('others')).toBeTruthy();
  });

  it('says that nothing was held', async () => {
    api.series = aSeries({ members: [] });
    await shown({});
    expect(
      screen.getByText('Nothing was held or used in that time.')
    ).toBeTruthy();
  });

  it('changes the time, and copies its link', async () => {
    await shown({ view: 'user', name: 'ann' });
    fireEvent.change(screen.getByRole('combobox', { name: 'Time' }), {
      target: { value: '24h' }
    });
    fireEvent.click(screen.getByRole('button', { name: 'Copy link' }));
    expect(executed).toEqual([
      [
        DashboardCommandIDs.open,
        { view: 'user', name: 'ann', range: '24h', by: 'client' }
      ],
      [DashboardCommandIDs.copyLink, {}]
    ]);
  });

  it('says why there is nothing to show', async () => {
    api.down = new Error('ann may not see what bob used');
    await shown({ view: 'user', name: 'bob' });
    expect(screen.getByRole('alert').textContent).toContain(
      'ann may not see what bob used'
    );
    expect(screen.queryByRole('status')).toBeNull();
  });
});

describe('quotas and nodes', () => {
  it('are only to be read for who is no administrator', async () => {
    api.administered = anAdministration({ admin: false });
    await shown({ view: 'quotas' });
    expect(screen.getByRole('link', { name: 'research/vision' })).toBeTruthy();
    expect(screen.queryByRole('textbox')).toBeNull();
    expect(screen.queryByRole('button', { name: /Drain/ })).toBeNull();
  });

  it('send what was changed, and nothing else', async () => {
    await shown({ view: 'quotas' });
    const save = screen.getByRole('button', {
      name: 'Save project research/vision'
    });
    expect(save).toHaveProperty('disabled', true);
    const limit = screen.getByRole('textbox', {
      name: 'Limit in GPUs of project research/vision'
    });
    fireEvent.change(limit, { target: { value: 'two' } });
    fireEvent.click(save);
    expect(screen.getByRole('alert').textContent).toContain(
      '“two” is no number of GPUs'
    );
    fireEvent.change(limit, { target: { value: '1.5' } });
    fireEvent.keyDown(limit, { key: 'Enter' });
    expect(executed).toEqual([
      [DashboardCommandIDs.setQuota, { path: 'research/vision', limit: 1500 }]
    ]);
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('drain a node, and let it take leases again', async () => {
    await shown({ view: 'quotas' });
    fireEvent.click(screen.getByRole('button', { name: 'Drain node vm' }));
    const [node] = api.administered.nodes;
    api.administered = anAdministration({
      nodes: [{ ...node, drained: true, drain_reason: 'new fans' }]
    });
    await model.refresh();
    render(<Page state={model.state} context={context} />);
    expect(screen.getByText('drained: new fans')).toBeTruthy();
    fireEvent.click(
      screen.getByRole('button', { name: 'Let node vm take requests again' })
    );
    expect(executed).toEqual([
      [DashboardCommandIDs.drain, { node: 'vm', drained: true }],
      [DashboardCommandIDs.drain, { node: 'vm', drained: false }]
    ]);
  });
});

it('a long table has means of several points', () => {
  expect(rowsOf(7, 3)).toEqual([
    [0, 3],
    [3, 6],
    [6, 7]
  ]);
  expect(mean([1, null, 3])).toBe(2);
  expect(mean([null])).toBeNull();
});

it('does not show an older answer after what was changed from here', async () => {
  at({ view: 'node', name: 'vm' });
  const [node] = anAdministration().nodes;
  const before = api.administered;
  const answer = holdHistory();
  const asked = model.refresh();
  api.administered = { ...before, nodes: [{ ...node, drained: true }] };
  const drained = model.drain('vm', true);
  answer();
  await Promise.all([asked, drained]);
  expect(model.state.administration).toBe(api.administered);
});

it('asks for another place at once, also while it asks for one', async () => {
  at({ view: 'cluster' });
  const answer = holdHistory();
  model.show(true);
  await new Promise(resolve => setTimeout(resolve, 20));
  model.go(placeOf({ view: 'device', name: 'vm/0' }));
  answer();
  await waitFor(() => expect(model.state.series).toBe(api.series));
  expect(api.calls.at(-1)).toMatch('history device/vm/0');
});
