import { Notification } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { fireEvent, screen, waitFor } from '@testing-library/dom';
import { addDashboardCommands } from '../../dashboard/commands';
import { DashboardCommandIDs } from '../../dashboard/ids';
import { DashboardModel } from '../../dashboard/model';
import { linkTo, placeOf, type IPlace } from '../../dashboard/place';
import { anAdministration, aSeries } from '../dashboardSamples';

let commands: CommandRegistry;
let model: DashboardModel | null;
let opened: IPlace[];
let changed: unknown[];
let refusal: Error | null;

beforeEach(() => {
  commands = new CommandRegistry();
  opened = [];
  changed = [];
  refusal = null;
  const change = async (...what: unknown[]) => {
    changed.push(what);
    if (refusal) {
      throw refusal;
    }
  };
  const api = {
    history: async () => aSeries(),
    administration: async () => anAdministration(),
    drain: change,
    setQuota: change
  } as unknown as DashboardModel.Api;
  model = new DashboardModel(api, placeOf({ view: 'quotas' }), {
    standby: 'never'
  });
  addDashboardCommands(
    commands,
    {
      open: place => opened.push(place),
      get model() {
        return model;
      },
      link: place => linkTo(place, 'http://lab.test/lab')
    },
    nullTranslator.load('jupyter_gpupool')
  );
});

afterEach(() => {
  model?.dispose();
  Notification.dismiss();
});

/** A dialog is not shown here, only made: its parts count as hidden. */
async function press(button: string): Promise<void> {
  const name = { name: button, hidden: true };
  const found = await screen.findByRole('button', name);
  fireEvent.click(found);
}

it('each says what it takes', async () => {
  for (const id of Object.values(DashboardCommandIDs)) {
    const description = await commands.describedBy(id);
    expect(description.args).toMatchObject({ type: 'object' });
  }
});

it('open goes to a place, or to the whole pool', async () => {
  await commands.execute(DashboardCommandIDs.open, { view: 'node', name: 'x' });
  await commands.execute(DashboardCommandIDs.open);
  expect(opened).toEqual([
    placeOf({ view: 'node', name: 'x' }),
    placeOf({ view: 'cluster' })
  ]);
});

it('a node is drained only when that is confirmed, with its reason', async () => {
  let done = commands.execute(DashboardCommandIDs.drain, { node: 'vm' });
  await press('Cancel');
  await done;
  expect(changed).toEqual([]);
  done = commands.execute(DashboardCommandIDs.drain, { node: 'vm' });
  const reason = await screen.findByRole('textbox', {
    name: 'Reason',
    hidden: true
  });
  fireEvent.change(reason, { target: { value: ' new fans ' } });
  fireEvent.click(screen.getByRole('checkbox', { hidden: true }));
  await press('Drain');
  await done;
  expect(changed).toEqual([['vm', true, 'new fans', true]]);
});

it('a node takes leases again without a question', async () => {
  const node = { node: 'vm', drained: false };
  await commands.execute(DashboardCommandIDs.drain, node);
  expect(changed).toEqual([['vm', false, '', false]]);
});

it('a quota is changed when that is confirmed; none is null', async () => {
  const done = commands.execute(DashboardCommandIDs.setQuota, {
    path: 'research',
    limit: null,
    weight: 2
  });
  await press('Change');
  await done;
  expect(changed).toEqual([['research', { limit: null, weight: 2 }]]);
});

it('what the pool refuses is said', async () => {
  refusal = new Error('ann is no administrator of the GPU pool.');
  const node = { node: 'vm', drained: false };
  await commands.execute(DashboardCommandIDs.drain, node);
  await waitFor(() =>
    expect(Notification.manager.notifications[0]?.message).toContain(
      'ann is no administrator'
    )
  );
});

it('nothing is changed without a dashboard', async () => {
  model?.dispose();
  model = null;
  expect(commands.isEnabled(DashboardCommandIDs.drain)).toBe(false);
  await commands.execute(DashboardCommandIDs.drain, { node: 'vm' });
  await commands.execute(DashboardCommandIDs.setQuota, { path: 'x' });
  expect(changed).toEqual([]);
});
