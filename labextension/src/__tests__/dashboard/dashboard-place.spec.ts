import { nullTranslator } from '@jupyterlab/translation';
import {
  figuresOf,
  formatNumber,
  summaryOf,
  valuesOf
} from '../../dashboard/figures';
import {
  linkTo,
  membersOf,
  placeIn,
  placeOf,
  queryOf,
  samePlace,
  VIEWS
} from '../../dashboard/place';
import { translucent } from '../../dashboard/plot';
import { readGpus, readWeight } from '../../dashboard/quota';
import { someColumns } from '../dashboardSamples';

const trans = nullTranslator.load('jupyter_gpupool');

describe('the link of a place', () => {
  it.each([
    [{ view: 'cluster' }, '?gpupool=cluster'],
    [{ view: 'node', name: 'vm' }, '?gpupool=node%2Fvm'],
    [
      { view: 'project', name: 'research/vision', range: '7d', by: 'client' },
      '?gpupool=project%2Fresearch%2Fvision&gpupool-range=7d&gpupool-by=client'
    ],
    [{ view: 'user', name: 'ann & co' }, '?gpupool=user%2Fann%20%26%20co']
  ])('of %j is %s, and leads back', (given, query) => {
    const place = placeOf(given);
    expect(queryOf(place)).toBe(query);
    expect(placeIn(query)).toEqual(place);
  });

  it('may be written by hand', () => {
    expect(placeIn('?reset&gpupool=node/vm')).toMatchObject({
      view: 'node',
      name: 'vm',
      range: '1h',
      by: 'device'
    });
  });

  it('is none where another is meant', () => {
    expect(placeIn('?path=gpupool')).toBeNull();
  });

  it('leads somewhere sensible, whatever is written', () => {
    expect(placeIn('?gpupool=colour/x&gpupool-range=9y&gpupool-by=x')).toEqual(
      placeOf({ view: 'cluster' })
    );
    expect(placeOf({ view: 'cluster', name: 'x' }).name).toBe('');
    expect(placeOf({ view: 'user', name: 'ann', by: 'user' }).by).toBe(
      'client'
    );
  });

  it('is for JupyterLab, not for a workspace', () => {
    expect(linkTo(placeOf({}), 'https://hub/user/ann/lab')).toBe(
      'https://hub/user/ann/lab?gpupool=cluster'
    );
  });

  it('of each view lists something below the charts', () => {
    for (const view of VIEWS) {
      expect(membersOf(view, '').length).toBeGreaterThan(0);
      expect(membersOf(view, 'x').length).toBeGreaterThan(0);
    }
  });

  it('is the same for the same place', () => {
    expect(samePlace(placeOf({}), placeOf({ view: 'cluster' }))).toBe(true);
    expect(samePlace(placeOf({}), placeOf({ range: '7d' }))).toBe(false);
  });
});

describe('the figures', () => {
  it('of a part have no capacity where there is none', () => {
    const names = (view: 'cluster' | 'node' | 'user') =>
      figuresOf(view, trans).map(figure => [
        figure.id,
        figure.lines.map(line => line.column)[0]
      ]);
    expect(names('cluster')).toEqual([
      ['compute', 'capacity_milli'],
      ['memory', 'capacity_mib'],
      ['idle', 'idle_milli'],
      ['network', 'to_device_bps'],
      ['queue', 'waiting']
    ]);
    expect(names('node').map(([id]) => id)).not.toContain('queue');
    expect(names('user')[0]).toEqual(['compute', 'held_milli']);
  });

  it('are in GPUs, with holes where nobody looked', () => {
    const [compute] = figuresOf('user', trans);
    expect(valuesOf(compute, someColumns())).toEqual([
      [null, 0.2, 0.5],
      [null, 0.05, 0.1]
    ]);
  });

  it('are told to who cannot see them', () => {
    const [compute] = figuresOf('user', trans);
    expect(summaryOf(compute, someColumns(), trans)).toBe(
      'Compute. allocated: now 0.5 GPU, at most 0.5 GPU; used: now 0.1 GPU, at most 0.1 GPU.'
    );
    const empty = { ...someColumns(), held_milli: [null, null, null] };
    expect(summaryOf(compute, empty, trans)).toContain(
      'allocated: nothing recorded'
    );
  });

  it('are written short', () => {
    expect([0.25, 1, 12.34, 1234.5].map(formatNumber)).toEqual([
      '0.25',
      '1',
      '12.3',
      '1235'
    ]);
    // Little is not nothing.
    expect([0, 0.0001, 0.004, 0.012].map(formatNumber)).toEqual([
      '0',
      '<0.001',
      '0.004',
      '0.01'
    ]);
  });

  it('are filled with their own colour', () => {
    expect(translucent('rgb(1, 2, 3)')).toBe('rgba(1, 2, 3, 0.2)');
    expect(translucent('canvastext')).toBe('canvastext');
  });
});

describe('a quota', () => {
  it('is read as people write it', () => {
    expect(
      [' 2 ', '0.5', '12,125', ''].map(text => readGpus(text, trans))
    ).toEqual([2000, 500, 12125, null]);
    expect(readWeight(' 3 ', trans)).toBe(3);
  });

  it.each(['two', '-1', '0.1234', '1e3'])('is not %j', text => {
    expect(() => readGpus(text, trans)).toThrow(`“${text}” is no number`);
    expect(() => readWeight(text, trans)).toThrow(`“${text}” is no weight`);
  });
});
