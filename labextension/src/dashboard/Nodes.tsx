import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import { NumberCell } from './NumberCell';
import { PlaceLink } from './PlaceLink';
import type { IDashboardContext } from './context';
import { DashboardCommandIDs } from './ids';
import { placeOf, type IPlace } from './place';
import type { GpuPool } from '../api/types';

/** How nodes are, and the switch that administrators have. */
export function Nodes(props: {
  nodes: readonly GpuPool.INode[];
  admin: boolean;
  place: IPlace;
  context: IDashboardContext;
}): JSX.Element {
  const { nodes, admin, place, context } = props;
  const { trans } = context;
  return (
    <section className="jp-GpuPool-members" aria-label={trans.__('Nodes')}>
      <h3>{trans.__('Nodes')}</h3>
      <div className="jp-GpuPool-scrolled">
        <table>
          <thead>
            <tr>
              <th scope="col">{trans.__('Node')}</th>
              <th scope="col">{trans.__('State')}</th>
              <th scope="col" className="jp-GpuPool-number">
                {trans.__('GPUs')}
              </th>
              <th scope="col" className="jp-GpuPool-number">
                {trans.__('Shares')}
              </th>
              {admin ? <th scope="col">{trans.__('Actions')}</th> : null}
            </tr>
          </thead>
          <tbody>
            {nodes.map(node => (
              <tr key={node.name}>
                <th scope="row">
                  <PlaceLink
                    place={placeOf({
                      view: 'node',
                      name: node.name,
                      range: place.range
                    })}
                    context={context}
                  >
                    {node.name}
                  </PlaceLink>
                </th>
                <td>{stateOf(node, context)}</td>
                <NumberCell>{node.devices}</NumberCell>
                <NumberCell>{node.leases}</NumberCell>
                {admin ? (
                  <td>
                    <Button
                      aria-label={
                        node.drained
                          ? trans.__(
                              'Let node %1 take requests again',
                              node.name
                            )
                          : trans.__('Drain node %1', node.name)
                      }
                      onClick={() =>
                        void context.commands.execute(
                          DashboardCommandIDs.drain,
                          { node: node.name, drained: !node.drained }
                        )
                      }
                    >
                      {node.drained ? trans.__('Undrain') : trans.__('Drain…')}
                    </Button>
                  </td>
                ) : null}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function stateOf(node: GpuPool.INode, { trans }: IDashboardContext): string {
  if (node.lost) {
    return trans.__('lost');
  }
  if (!node.connected) {
    return trans.__('not connected');
  }
  if (node.drained) {
    return node.drain_reason
      ? trans.__('drained: %1', node.drain_reason)
      : trans.__('drained');
  }
  return trans.__('takes requests');
}
