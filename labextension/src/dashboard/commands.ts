import {
  Clipboard,
  Dialog,
  Notification,
  showDialog
} from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { gpuIcon } from '../ui/icons';
import { DashboardCommandIDs } from './ids';
import type { DashboardModel } from './model';
import { MEMBERS, placeOf, RANGES, VIEWS, type IPlace } from './place';
import type { GpuPool } from '../api/types';

/** What the commands work on. */
export interface IDashboards {
  /** Opens the dashboard, or brings it to the front, at a place. */
  open(place: IPlace): void;
  /** The model of the dashboard that is open. */
  readonly model: DashboardModel | null;
  /** The address of a place. */
  link(place: IPlace): string;
}

const PLACE = {
  view: { type: 'string', enum: [...VIEWS] },
  name: {
    type: 'string',
    description:
      'A node, a device (node/0), a user, a project or a session id; empty: all together.'
  },
  range: { type: 'string', enum: Object.keys(RANGES) },
  by: {
    type: 'string',
    enum: [...MEMBERS],
    description: 'What the table lists.'
  }
};

/** Registers the commands of the dashboard. */
export function addDashboardCommands(
  commands: CommandRegistry,
  dashboards: IDashboards,
  trans: TranslationBundle
): void {
  const schema = (properties: ReadonlyJSONObject, required: string[] = []) => ({
    args: { type: 'object', properties, required }
  });

  const act = async (action: () => Promise<void>): Promise<void> => {
    try {
      await action();
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      Notification.error(message, { autoClose: 10000 });
    }
  };

  commands.addCommand(DashboardCommandIDs.open, {
    label: args =>
      args.isPalette
        ? trans.__('Open GPU Dashboard')
        : trans.__('GPU Dashboard'),
    caption: trans.__('Show what the GPU pool held and used over time'),
    icon: args => (args.isPalette ? undefined : gpuIcon),
    describedBy: schema(PLACE),
    execute: args => dashboards.open(placeOf(args))
  });

  commands.addCommand(DashboardCommandIDs.copyLink, {
    label: trans.__('Copy Link to GPU Dashboard'),
    caption: trans.__('Copy a link that opens what the dashboard shows'),
    describedBy: schema({}),
    isEnabled: () => dashboards.model !== null,
    execute: () => {
      if (dashboards.model !== null) {
        Clipboard.copyToSystem(dashboards.link(dashboards.model.state.place));
        Notification.success(trans.__('The link is in the clipboard.'), {
          autoClose: 3000
        });
      }
    }
  });

  commands.addCommand(DashboardCommandIDs.drain, {
    label: args =>
      args.drained === false
        ? trans.__('Let GPU Node Take Leases Again')
        : trans.__('Drain GPU Node…'),
    caption: trans.__('Let a node take no new leases, or take them again'),
    describedBy: schema(
      {
        node: { type: 'string' },
        drained: {
          type: 'boolean',
          description: 'False: it takes leases again.'
        }
      },
      ['node']
    ),
    isEnabled: () => dashboards.model !== null,
    execute: async args => {
      const { model } = dashboards;
      const node = String(args.node ?? '');
      if (model === null || node === '') {
        return;
      }
      if (args.drained === false) {
        await act(() => model.drain(node, false));
        return;
      }
      const wish = await askDrain(node, trans);
      if (wish !== null) {
        await act(() => model.drain(node, true, wish.reason, wish.evict));
      }
    }
  });

  commands.addCommand(DashboardCommandIDs.setQuota, {
    label: trans.__('Set Quota of GPU Project'),
    caption: trans.__('Change what a project deserves, its limit or weight'),
    describedBy: schema(
      {
        path: { type: 'string' },
        deserved: {
          type: ['integer', 'null'],
          description: 'Milli-GPU; null: what its siblings leave.'
        },
        limit: {
          type: ['integer', 'null'],
          description: 'Milli-GPU; null: no limit.'
        },
        weight: { type: 'integer', minimum: 0 }
      },
      ['path']
    ),
    isEnabled: () => dashboards.model !== null,
    execute: async args => {
      const { model } = dashboards;
      const path = String(args.path ?? '');
      if (model === null || path === '' || !(await askQuota(path, trans))) {
        return;
      }
      const change: GpuPool.IQuotaChange = {};
      for (const name of ['deserved', 'limit', 'weight'] as const) {
        if (args[name] !== undefined) {
          Object.assign(change, { [name]: args[name] });
        }
      }
      await act(() => model.setQuota(path, change));
    }
  });
}

/** What is asked before a node takes no more leases. */
class DrainForm extends Widget implements Dialog.IBodyWidget<IDrainWish> {
  constructor(node: string, trans: TranslationBundle) {
    super();
    const { ownerDocument: document } = this.node;
    const text = document.createElement('p');
    text.textContent = trans.__(
      'Node %1 will take no new leases. Leases that it has go on, unless you end them.',
      node
    );
    this._reason = document.createElement('input');
    this._reason.className = 'jp-mod-styled';
    this._reason.maxLength = 200;
    this._reason.setAttribute('aria-label', trans.__('Reason'));
    this._reason.placeholder = trans.__('Reason, shown to who waits');
    this._evict = document.createElement('input');
    this._evict.type = 'checkbox';
    const label = document.createElement('label');
    label.append(
      this._evict,
      ' ',
      trans.__('Take its shares back too, with notice; memory is kept')
    );
    this.node.append(text, this._reason, label);
    this.addClass('jp-GpuPool-drainForm');
  }

  getValue(): IDrainWish {
    return { reason: this._reason.value.trim(), evict: this._evict.checked };
  }

  private readonly _reason: HTMLInputElement;
  private readonly _evict: HTMLInputElement;
}

interface IDrainWish {
  reason: string;
  evict: boolean;
}

async function askDrain(
  node: string,
  trans: TranslationBundle
): Promise<IDrainWish | null> {
  const answer = await showDialog({
    title: trans.__('Drain node %1?', node),
    body: new DrainForm(node, trans),
    buttons: [
      Dialog.cancelButton(),
      Dialog.warnButton({ label: trans.__('Drain') })
    ]
  });
  return answer.button.accept ? answer.value : null;
}

async function askQuota(
  path: string,
  trans: TranslationBundle
): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Change project %1?', path),
    body: trans.__(
      'The deserved GPUs of a project decide whose leases may be taken back.'
    ),
    buttons: [
      Dialog.cancelButton(),
      Dialog.okButton({ label: trans.__('Change') })
    ]
  });
  return answer.button.accept;
}
