import { URLExt } from '@jupyterlab/coreutils';

/** What can be looked at. */
export const VIEWS = [
  'cluster',
  'node',
  'device',
  'user',
  'project',
  'client',
  'quotas'
] as const;

export type View = (typeof VIEWS)[number];

/** What the table below the charts lists. */
export const MEMBERS = ['node', 'device', 'user', 'project', 'client'] as const;

export type Members = (typeof MEMBERS)[number];

/** How far back, and how often it is asked again meanwhile. */
export const RANGES = {
  '15m': { seconds: 900, pollSeconds: 10 },
  '1h': { seconds: 3600, pollSeconds: 10 },
  '6h': { seconds: 6 * 3600, pollSeconds: 30 },
  '24h': { seconds: 86_400, pollSeconds: 60 },
  '7d': { seconds: 7 * 86_400, pollSeconds: 300 },
  '30d': { seconds: 30 * 86_400, pollSeconds: 300 },
  '90d': { seconds: 90 * 86_400, pollSeconds: 300 }
} as const;

export type Range = keyof typeof RANGES;

/** What a dashboard shows; everything of it is in its link. */
export interface IPlace {
  view: View;
  /** Of what; empty: of all together. */
  name: string;
  range: Range;
  /** Always one of `membersOf(view, name)`. */
  by: Members;
}

/** The parameter of a URL that opens a dashboard, and those beside it. */
export const PARAMETER = 'gpupool';
const RANGE = 'gpupool-range';
const BY = 'gpupool-by';

/** Matches URLs with a place in them, for JupyterLab's router. */
export const PATTERN = /[?&]gpupool=/;

const CHOICES: { readonly [view in View]: readonly Members[] } = {
  cluster: ['node', 'user', 'project', 'client'],
  node: ['device', 'user', 'project', 'client'],
  device: ['user', 'project', 'client'],
  user: ['client', 'project', 'node'],
  project: ['user', 'client', 'node'],
  client: ['device'],
  quotas: ['project']
};

/** What the table may list; without a name a view lists what it is of. */
export function membersOf(view: View, name: string): readonly Members[] {
  return name === '' && view !== 'cluster' && view !== 'quotas'
    ? [view]
    : CHOICES[view];
}

/** A place from what somebody gives, sensible whatever it is. */
export function placeOf(given: { readonly [name: string]: unknown }): IPlace {
  const view = oneOf(VIEWS, given.view) ?? 'cluster';
  const named = view !== 'cluster' && view !== 'quotas';
  const name = named && typeof given.name === 'string' ? given.name : '';
  const choices = membersOf(view, name);
  return {
    view,
    name,
    range: oneOf(Object.keys(RANGES) as Range[], given.range) ?? '1h',
    by: oneOf(choices, given.by) ?? choices[0]
  };
}

/** The query of a URL that opens a place: `?gpupool=node/vm`. */
export function queryOf(place: IPlace): string {
  const what = place.name ? `${place.view}/${place.name}` : place.view;
  const parts: { [name: string]: string } = { [PARAMETER]: what };
  if (place.range !== '1h') {
    parts[RANGE] = place.range;
  }
  if (place.by !== membersOf(place.view, place.name)[0]) {
    parts[BY] = place.by;
  }
  return URLExt.objectToQueryString(parts);
}

/** The place in the query of a URL; null: there is none. */
export function placeIn(query: string): IPlace | null {
  const parts = new URLSearchParams(query);
  const what = parts.get(PARAMETER);
  if (what === null) {
    return null;
  }
  const slash = what.indexOf('/');
  return placeOf({
    view: slash < 0 ? what : what.slice(0, slash),
    name: slash < 0 ? '' : what.slice(slash + 1),
    range: parts.get(RANGE),
    by: parts.get(BY)
  });
}

/** A link that another person can open: JupyterLab, not one's own workspace. */
export function linkTo(place: IPlace, labUrl: string): string {
  return new URL(labUrl, window.location.href).href + queryOf(place);
}

export function samePlace(one: IPlace, other: IPlace): boolean {
  return queryOf(one) === queryOf(other);
}

/** The URL of JupyterLab below the base URL of the server. */
export function labUrlOf(baseUrl: string): string {
  return URLExt.join(baseUrl, 'lab');
}

function oneOf<T extends string>(
  choices: readonly T[],
  value: unknown
): T | undefined {
  return choices.find(choice => choice === value);
}
