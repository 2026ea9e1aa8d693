import { formatBytes } from '../text/format';
import { h } from '../ui/jsx';
import { NumberCell } from './NumberCell';
import { PlaceLink } from './PlaceLink';
import type { IDashboardContext } from './context';
import { formatNumber } from './figures';
import { membersOf, placeOf, type IPlace, type Members } from './place';
import type { GpuPool } from '../api/types';

/** Who had what of it: sums over the whole time, the largest first. */
export function MembersTable(props: {
  place: IPlace;
  series: GpuPool.IHistory;
  context: IDashboardContext;
}): JSX.Element {
  const { place, series, context } = props;
  const { trans } = context;
  const choices = membersOf(place.view, place.name);
  const clients = place.by === 'client';
  return (
    <section className="jp-GpuPool-members" aria-label={trans.__('Sums')}>
      {choices.length > 1 ? (
        <nav aria-label={trans.__('Sums by')} className="jp-GpuPool-choices">
          <span>{trans.__('By')}</span>
          {choices.map(by => (
            <PlaceLink
              key={by}
              place={placeOf({ ...place, by })}
              current={by === place.by}
              context={context}
            >
              {titleOf(by, context)}
            </PlaceLink>
          ))}
        </nav>
      ) : null}
      <div className="jp-GpuPool-scrolled">
        <table>
          <thead>
            <tr>
              <th scope="col">{titleOf(place.by, context)}</th>
              {clients ? <th scope="col">{trans.__('User')}</th> : null}
              <Figure name={trans.__('GPU hours')} />
              <Figure name={trans.__('used')} />
              <Figure name={trans.__('idle')} />
              <Figure name={trans.__('GiB hours')} />
              <Figure name={trans.__('to GPUs')} />
              <Figure name={trans.__('from GPUs')} />
            </tr>
          </thead>
          <tbody>
            {series.members.map(member => (
              <tr key={member.name}>
                <th scope="row">
                  <Name member={member} place={place} context={context} />
                </th>
                {clients ? <td>{member.user}</td> : null}
                <NumberCell>{formatNumber(member.held_hours)}</NumberCell>
                <NumberCell>{formatNumber(member.used_hours)}</NumberCell>
                <NumberCell>{formatNumber(member.idle_hours)}</NumberCell>
                <NumberCell>{formatNumber(member.memory_gib_hours)}</NumberCell>
                <NumberCell>{formatBytes(member.to_device_bytes)}</NumberCell>
                <NumberCell>{formatBytes(member.from_device_bytes)}</NumberCell>
              </tr>
            ))}
          </tbody>
        </table>
        {series.members.length === 0 ? (
          <p className="jp-GpuPool-detail">
            {trans.__('Nothing was held or used in that time.')}
          </p>
        ) : null}
      </div>
    </section>
  );
}

function Figure(props: { name: string }): JSX.Element {
  return (
    <th scope="col" className="jp-GpuPool-number">
      {props.name}
    </th>
  );
}

function Name(props: {
  member: GpuPool.IMember;
  place: IPlace;
  context: IDashboardContext;
}): JSX.Element {
  const { member, place, context } = props;
  if (member.name === '(others)') {
    return <em>{context.trans.__('others')}</em>;
  }
  const there = placeOf({
    view: place.by,
    name: member.name,
    range: place.range
  });
  return (
    <PlaceLink place={there} context={context}>
      {place.by === 'client' && member.label
        ? `${member.label} (${member.name.slice(0, 8)})`
        : member.name}
    </PlaceLink>
  );
}

/** What members are called. */
export function titleOf(by: Members, { trans }: IDashboardContext): string {
  switch (by) {
    case 'node':
      return trans.__('Node');
    case 'device':
      return trans.__('Device');
    case 'user':
      return trans.__('User');
    case 'project':
      return trans.__('Project');
    case 'client':
      return trans.__('Client');
  }
}
