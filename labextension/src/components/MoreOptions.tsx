import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { useId, useState } from 'react';
import { REQUEST_OPTIONS } from '../api/request';
import type { GpuPool } from '../api/types';
import { besideText } from '../text/words';
import { Fragment, h } from '../ui/jsx';
import { ProjectChoice } from './ProjectChoice';
import type { IContext } from './context';

/** What a person may say of a request beside how much; as typed. */
export interface IMore extends Required<
  Pick<GpuPool.IAttachOptions, 'nodes' | 'strict' | 'project'>
> {
  count: string;
}

/** What a notebook notes, as it is shown; where it notes nothing, as by default. */
export function moreOf(noted: GpuPool.IAttachOptions | null): IMore {
  return {
    count: String(noted?.count ?? 1),
    nodes: noted?.nodes ?? 'auto',
    strict: noted?.strict ?? false,
    project: noted?.project ?? ''
  };
}

/** What a notebook notes and nothing here shows, such as the kind of the request. */
export function unshownOf(
  noted: GpuPool.IAttachOptions | null
): ReadonlyPartialJSONObject {
  const shown = { share: '', ...moreOf(noted) };
  return Object.fromEntries(
    Object.entries(noted ?? {}).filter(([name]) => !(name in shown))
  );
}

/** As many devices as the pool grants to one request. */
const MOST_DEVICES = REQUEST_OPTIONS.count.maximum;

/** What is wrong with the number of devices, or null. */
export function checkCount(
  text: string,
  trans: IContext['trans']
): string | null {
  const good = /^\s*\d{1,3}\s*$/.test(text);
  const count = Number(text);
  return good && count >= 1 && count <= MOST_DEVICES
    ? null
    : trans.__('GPUs: a whole number from 1 to %1.', MOST_DEVICES);
}

/** The arguments of the attach command; what is as by default is left out. */
export function argumentsOf(
  more: IMore
): Pick<GpuPool.IAttachOptions, 'count' | keyof IMore> {
  const count = Number(more.count);
  const project = more.project.trim();
  return {
    ...(count > 1 ? { count } : {}),
    ...(more.nodes === 'auto' ? {} : { nodes: more.nodes }),
    ...(more.strict ? { strict: true } : {}),
    ...(project === '' ? {} : { project })
  };
}

/** Several GPUs, where they may lie, a hard cap, the project. */
export function MoreOptions(props: {
  kernel: GpuPool.IKernel;
  more: IMore;
  /** What the notebook notes. */
  noted: GpuPool.IAttachOptions | null;
  onChange: (more: IMore) => void;
  context: IContext;
}): JSX.Element {
  const { kernel, more, noted, context } = props;
  const { trans } = context;
  const [open, setOpen] = useState(false);
  const fields = useId();
  // What the notebook notes is asked for though it is folded away.
  const folded = open
    ? ''
    : besideText({ ...unshownOf(noted), ...argumentsOf(more) }, trans);
  return (
    <div className="jp-GpuPool-more">
      <button
        type="button"
        className="jp-GpuPool-link"
        aria-expanded={open}
        aria-controls={fields}
        aria-label={
          trans.__('More about the request of %1', kernel.label) + folded
        }
        onClick={() => setOpen(!open)}
      >
        {open ? trans.__('Less') : trans.__('More…') + folded}
      </button>
      <div id={fields} hidden={!open}>
        {open ? <Fields {...props} /> : null}
      </div>
    </div>
  );
}

function Fields(props: {
  kernel: GpuPool.IKernel;
  more: IMore;
  noted: GpuPool.IAttachOptions | null;
  onChange: (more: IMore) => void;
  context: IContext;
}): JSX.Element {
  const { kernel, more, noted, onChange, context } = props;
  const { trans } = context;
  return (
    <>
      <label>
        <span>{trans.__('GPUs')}</span>
        <input
          type="text"
          inputMode="numeric"
          className="jp-mod-styled jp-GpuPool-input"
          aria-label={trans.__('Number of GPUs for %1', kernel.label)}
          aria-invalid={checkCount(more.count, trans) !== null}
          autoComplete="off"
          value={more.count}
          onChange={event => onChange({ ...more, count: event.target.value })}
        />
      </label>
      <label>
        <span>{trans.__('Nodes')}</span>
        <select
          className="jp-mod-styled"
          aria-label={trans.__('Where the GPUs of %1 may lie', kernel.label)}
          value={more.nodes}
          onChange={event =>
            onChange({ ...more, nodes: event.target.value as IMore['nodes'] })
          }
        >
          <option value="auto">
            {trans.__('on one, if one can serve it')}
          </option>
          <option value="one">{trans.__('on one')}</option>
          <option value="any">{trans.__('on any')}</option>
        </select>
      </label>
      <label>
        <span>{trans.__('Project')}</span>
        <ProjectChoice
          label={trans.__('Project for %1', kernel.label)}
          value={more.project}
          noted={noted?.project}
          onChange={project => onChange({ ...more, project })}
          context={context}
        />
      </label>
      <label>
        <span>{trans.__('Hard cap')}</span>
        <input
          type="checkbox"
          aria-label={trans.__('Cap the compute of %1 hard', kernel.label)}
          checked={more.strict}
          onChange={event =>
            onChange({ ...more, strict: event.target.checked })
          }
        />
      </label>
    </>
  );
}
