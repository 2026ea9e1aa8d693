import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Button } from '../ui/Button';
import { gpuIcon } from '../ui/icons';
import { Fragment, h } from '../ui/jsx';
import { Chart } from './Chart';
import { MembersTable } from './MembersTable';
import { Nodes } from './Nodes';
import { PlaceLink } from './PlaceLink';
import { Quotas } from './Quotas';
import type { IDashboardContext } from './context';
import { figuresOf, formatNumber } from './figures';
import { DASHBOARD_ID, DashboardCommandIDs } from './ids';
import type { IDashboardState } from './model';
import { placeOf, RANGES, type IPlace, type Range, type View } from './place';
import type { GpuPool } from '../api/types';

/** History of the pool in the main area. It shows its model and nothing else. */
export class Dashboard extends ReactWidget {
  constructor(readonly context: IDashboardContext) {
    super();
    const { trans } = context;
    this.id = `${DASHBOARD_ID}-content`;
    this.addClass('jp-GpuPool-dashboard');
    this.title.icon = gpuIcon;
    this.title.label = trans.__('GPU Dashboard');
    this.title.caption = trans.__('History of the GPU pool');
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.context.model.dispose();
      super.dispose();
    }
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // A main area widget gives its content a name that says nothing.
    const { trans } = this.context;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU dashboard'));
    this.node.tabIndex = 0;
    this.context.model.show(this.isVisible);
  }

  protected override onAfterShow(): void {
    this.context.model.show(true);
  }

  protected override onBeforeHide(): void {
    this.context.model.show(false);
  }

  protected override render(): JSX.Element {
    const { model } = this.context;
    return (
      <UseSignal signal={model.changed}>
        {() => <Page state={model.state} context={this.context} />}
      </UseSignal>
    );
  }
}

/** The whole page. */
export function Page(props: {
  state: IDashboardState;
  context: IDashboardContext;
}): JSX.Element {
  const { state, context } = props;
  const { trans } = context;
  const { place, series, administration, problem } = state;
  return (
    <>
      <Header place={place} context={context} />
      {problem ? (
        <p role="alert" className="jp-GpuPool-problem">
          {trans.__('The history could not be read: %1', problem)}
        </p>
      ) : null}
      {series === null && administration === null && problem === null ? (
        <p role="status">{trans.__('Loading…')}</p>
      ) : null}
      {series ? (
        <History place={place} series={series} context={context} />
      ) : null}
      {administration && place.view === 'quotas' ? (
        <Quotas
          projects={administration.projects}
          warnings={administration.warnings}
          admin={administration.admin}
          place={place}
          context={context}
        />
      ) : null}
      {administration && (place.view === 'quotas' || place.view === 'node') ? (
        <Nodes
          nodes={administration.nodes.filter(
            node => place.name === '' || node.name === place.name
          )}
          admin={administration.admin}
          place={place}
          context={context}
        />
      ) : null}
    </>
  );
}

function Header(props: {
  place: IPlace;
  context: IDashboardContext;
}): JSX.Element {
  const { place, context } = props;
  const { trans, commands } = context;
  const views: [View, string][] = [
    ['cluster', trans.__('Cluster')],
    ['node', trans.__('Nodes')],
    ['user', trans.__('Users')],
    ['project', trans.__('Projects')],
    ['client', trans.__('Clients')],
    ['quotas', trans.__('Quotas')]
  ];
  const section = place.view === 'device' ? 'node' : place.view;
  return (
    <div className="jp-GpuPool-dashboardHeader">
      <nav aria-label={trans.__('Views')} className="jp-GpuPool-choices">
        {views.map(([view, title]) => (
          <PlaceLink
            key={view}
            place={placeOf({ view, range: place.range })}
            current={view === section}
            context={context}
          >
            {title}
          </PlaceLink>
        ))}
      </nav>
      <div className="jp-GpuPool-choices">
        {place.view === 'quotas' ? null : (
          <RangeChoice place={place} context={context} />
        )}
        <Button
          onClick={() => void commands.execute(DashboardCommandIDs.copyLink)}
        >
          {trans.__('Copy link')}
        </Button>
      </div>
      <h2>{headingOf(place, context)}</h2>
    </div>
  );
}

function RangeChoice(props: {
  place: IPlace;
  context: IDashboardContext;
}): JSX.Element {
  const { place, context } = props;
  const { trans } = context;
  const titles: { readonly [range in Range]: string } = {
    '15m': trans.__('Last 15 minutes'),
    '1h': trans.__('Last hour'),
    '6h': trans.__('Last 6 hours'),
    '24h': trans.__('Last 24 hours'),
    '7d': trans.__('Last 7 days'),
    '30d': trans.__('Last 30 days'),
    '90d': trans.__('Last 90 days')
  };
  return (
    <select
      className="jp-mod-styled"
      aria-label={trans.__('Time')}
      value={place.range}
      onChange={event =>
        void context.commands.execute(DashboardCommandIDs.open, {
          ...place,
          range: event.target.value
        })
      }
    >
      {(Object.keys(RANGES) as Range[]).map(range => (
        <option key={range} value={range}>
          {titles[range]}
        </option>
      ))}
    </select>
  );
}

function History(props: {
  place: IPlace;
  series: GpuPool.IHistory;
  context: IDashboardContext;
}): JSX.Element {
  const { place, series, context } = props;
  const { trans } = context;
  const total = series.total;
  return (
    <>
      <dl className="jp-GpuPool-totals" aria-label={trans.__('Totals')}>
        <Total
          name={trans.__('GPU hours allocated')}
          value={formatNumber(total.held_hours)}
        />
        <Total
          name={trans.__('GPU hours used')}
          value={formatNumber(total.used_hours)}
        />
        <Total
          name={trans.__('GPU hours idle')}
          value={formatNumber(total.idle_hours)}
        />
        {total.capacity_hours > 0 ? (
          <Total
            name={trans.__('Allocated of capacity')}
            value={`${Math.round((100 * total.held_hours) / total.capacity_hours)} %`}
          />
        ) : null}
      </dl>
      <div className="jp-GpuPool-figures">
        {figuresOf(place.view, trans).map(figure => (
          <Chart
            key={`${place.view} ${figure.id}`}
            figure={figure}
            columns={series.points}
            trans={trans}
            themeChanged={context.themeChanged}
          />
        ))}
      </div>
      <MembersTable place={place} series={series} context={context} />
    </>
  );
}

function Total(props: { name: string; value: string }): JSX.Element {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>{props.value}</dd>
    </div>
  );
}

/** What the page is about. */
export function headingOf(place: IPlace, { trans }: IDashboardContext): string {
  const all = place.name === '';
  switch (place.view) {
    case 'cluster':
      return trans.__('The whole pool');
    case 'node':
      return all ? trans.__('All nodes') : trans.__('Node %1', place.name);
    case 'device':
      return all ? trans.__('All devices') : trans.__('Device %1', place.name);
    case 'user':
      return all ? trans.__('All users') : trans.__('User %1', place.name);
    case 'project':
      return all
        ? trans.__('All projects')
        : trans.__('Project %1', place.name);
    case 'client':
      return all
        ? trans.__('Clients')
        : trans.__('Client %1', place.name.slice(0, 8));
    case 'quotas':
      return trans.__('Quotas and nodes');
  }
}
