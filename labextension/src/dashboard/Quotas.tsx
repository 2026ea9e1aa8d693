import { useState } from 'react';
import { render } from '../text/sentence';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import { NumberCell } from './NumberCell';
import { PlaceLink } from './PlaceLink';
import type { IDashboardContext } from './context';
import { formatNumber } from './figures';
import { DashboardCommandIDs } from './ids';
import { placeOf, type IPlace } from './place';
import { readGpus, readWeight } from './quota';
import type { GpuPool } from '../api/types';

/** What projects deserve and hold; administrators change it here. */
export function Quotas(props: {
  projects: readonly GpuPool.IProject[];
  warnings: readonly string[];
  admin: boolean;
  place: IPlace;
  context: IDashboardContext;
}): JSX.Element {
  const { projects, warnings, admin, context } = props;
  const { trans } = context;
  return (
    <section className="jp-GpuPool-members" aria-label={trans.__('Projects')}>
      <h3>{trans.__('Projects')}</h3>
      <p className="jp-GpuPool-detail">
        {trans.__(
          'Deserved: the GPUs that a project always gets. Limit: the GPUs that it never exceeds. Weight: for sharing unreserved GPUs with its siblings.'
        )}
      </p>
      {warnings.map(warning => (
        <p key={warning} role="note" className="jp-GpuPool-warning">
          {warning}
        </p>
      ))}
      <div className="jp-GpuPool-scrolled">
        <table>
          <thead>
            <tr>
              <th scope="col">{trans.__('Project')}</th>
              <th scope="col">{trans.__('Deserved (GPUs)')}</th>
              <th scope="col">{trans.__('Limit (GPUs)')}</th>
              <th scope="col">{trans.__('Weight')}</th>
              <Number name={trans.__('Held')} />
              <Number name={trans.__('Waiting')} />
              <Number name={trans.__('Fair share')} />
              {admin ? <th scope="col">{trans.__('Actions')}</th> : null}
            </tr>
          </thead>
          <tbody>
            {projects.map(project => (
              <Row
                // Fields begin anew when somebody else has changed the project.
                key={[
                  project.path,
                  project.deserved_milli,
                  project.limit_milli,
                  project.weight
                ].join(' ')}
                {...props}
                project={project}
              />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Number(props: { name: string }): JSX.Element {
  return (
    <th scope="col" className="jp-GpuPool-number">
      {props.name}
    </th>
  );
}

function Row(props: {
  project: GpuPool.IProject;
  admin: boolean;
  place: IPlace;
  context: IDashboardContext;
}): JSX.Element {
  const { project, admin, place, context } = props;
  const { trans } = context;
  const before = {
    deserved: textOf(project.deserved_milli),
    limit: textOf(project.limit_milli),
    weight: String(project.weight)
  };
  const [fields, setFields] = useState(before);
  const [problem, setProblem] = useState<string | null>(null);
  const changed = (Object.keys(before) as (keyof typeof before)[]).filter(
    name => fields[name].trim() !== before[name]
  );

  const save = () => {
    let change: GpuPool.IQuotaChange = {};
    try {
      for (const name of changed) {
        const read = name === 'weight' ? readWeight : readGpus;
        change = { ...change, [name]: read(fields[name], trans) };
      }
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      return;
    }
    setProblem(null);
    void context.commands.execute(DashboardCommandIDs.setQuota, {
      path: project.path,
      ...change
    });
  };

  const field = (name: keyof typeof before, label: string, none: string) => (
    <td>
      {admin ? (
        <input
          className="jp-mod-styled"
          aria-label={trans.__('%1 of project %2', label, project.path)}
          placeholder={none}
          value={fields[name]}
          onChange={event =>
            setFields({ ...fields, [name]: event.target.value })
          }
          onKeyDown={event => {
            if (event.key === 'Enter' && changed.length > 0) {
              // Else the same key press would answer the question that comes.
              event.preventDefault();
              save();
            }
          }}
        />
      ) : (
        before[name] || none
      )}
    </td>
  );

  return (
    <tr>
      <th scope="row">
        <PlaceLink
          place={placeOf({
            view: 'project',
            name: project.path,
            range: place.range
          })}
          context={context}
        >
          {project.path}
        </PlaceLink>
        {project.alerts.map(render).map(alert => (
          <p key={alert} className="jp-GpuPool-warning">
            {alert}
          </p>
        ))}
        {problem ? (
          <p role="alert" className="jp-GpuPool-warning">
            {problem}
          </p>
        ) : null}
      </th>
      {field('deserved', trans.__('Deserved GPUs'), trans.__('the rest'))}
      {field('limit', trans.__('Limit in GPUs'), trans.__('none'))}
      {field('weight', trans.__('Weight'), '')}
      <NumberCell>{formatNumber(project.allocated_milli / 1000)}</NumberCell>
      <NumberCell>{formatNumber(project.waiting_milli / 1000)}</NumberCell>
      <NumberCell>{formatNumber(project.fair_share_milli / 1000)}</NumberCell>
      {admin ? (
        <td>
          <Button
            disabled={changed.length === 0}
            aria-label={trans.__('Save project %1', project.path)}
            onClick={save}
          >
            {trans.__('Save')}
          </Button>
        </td>
      ) : null}
    </tr>
  );
}

function textOf(milli: number | null): string {
  return milli === null ? '' : String(milli / 1000);
}
