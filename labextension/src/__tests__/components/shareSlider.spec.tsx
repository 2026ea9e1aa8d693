import { act, fireEvent, render, screen } from '@testing-library/react';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/ids';
import { KernelForm } from '../../components/KernelForm';
import { h } from '../../ui/jsx';
import { aDevice, anAttachedKernel, aPool, aShare } from '../samples';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;

/** 0.2 is held, 0.4 of the device is others', so 0.6 can be had. */
const POOL = aPool({
  devices: [
    aDevice({
      shares: [
        aShare({ lease_id: 'm', milli: 200, mib: 1587, mine: true }),
        aShare({ lease_id: 'o', milli: 400, mib: 3000 })
      ]
    })
  ]
});

beforeEach(async () => {
  fixture = new SidebarFixture();
  fixture.server.answer = POOL;
  await act(() => fixture.model.refresh());
  jest.useFakeTimers();
});

afterEach(() => {
  fixture.dispose();
  jest.useRealTimers();
});

function form(part: Partial<GpuPool.IKernel> = {}, pending = false) {
  return (
    <KernelForm
      kernel={anAttachedKernel(part)}
      pending={pending}
      context={fixture.context}
    />
  );
}

function slider(): HTMLInputElement {
  return screen.getByRole<HTMLInputElement>('slider', {
    name: 'Resize the share of train.ipynb'
  });
}

/** What browsers send while a thumb is moved. */
function slide(milli: number): void {
  fireEvent.input(slider(), { target: { value: String(milli) } });
}

/** What they send once it is let go. */
async function letGo(): Promise<void> {
  await act(async () => {
    slider().dispatchEvent(new Event('change', { bubbles: true }));
  });
}

const resized = (share: string) => [
  [CommandIDs.resize, { kernelId: 'k1', quiet: true, share }]
];

it('shows what is held, and says what could be', () => {
  render(form());
  expect(slider().value).toBe('200');
  expect(slider().getAttribute('aria-valuetext')).toBe(
    '0.2 of a GPU; can grow to 0.6'
  );
  screen.getByText('Can grow to 0.6.');
});

it('asks once, when it is let go', async () => {
  render(form());
  fireEvent.pointerDown(slider());
  for (const milli of [250, 300, 350]) {
    slide(milli);
  }
  expect(screen.getByRole<HTMLInputElement>('textbox').value).toBe('0.35');
  expect(fixture.executed).toEqual([]);
  await letGo();
  expect(fixture.executed).toEqual(resized('0.35'));
});

it('stops at what is free', async () => {
  render(form());
  fireEvent.pointerDown(slider());
  slide(900);
  expect(slider().value).toBe('600');
  await letGo();
  expect(fixture.executed).toEqual(resized('0.6'));
});

it('waits until keys rest', async () => {
  render(form());
  for (const milli of [210, 220, 230]) {
    fireEvent.keyDown(slider(), { key: 'ArrowRight' });
    slide(milli);
    await letGo();
  }
  expect(fixture.executed).toEqual([]);
  await act(() => jest.advanceTimersByTimeAsync(1000));
  expect(fixture.executed).toEqual(resized('0.23'));
});

it('asks at once with Enter, and when focus leaves', async () => {
  render(form());
  fireEvent.keyDown(slider(), { key: 'ArrowRight' });
  slide(210);
  await act(async () => {
    fireEvent.keyDown(slider(), { key: 'Enter' });
  });
  expect(fixture.executed).toEqual(resized('0.21'));
  fireEvent.keyDown(slider(), { key: 'ArrowRight' });
  slide(220);
  await act(async () => {
    fireEvent.blur(slider());
  });
  expect(fixture.executed).toHaveLength(2);
});

it('is called off with Escape', async () => {
  render(form());
  fireEvent.keyDown(slider(), { key: 'End' });
  slide(600);
  fireEvent.keyDown(slider(), { key: 'Escape' });
  await act(() => jest.advanceTimersByTimeAsync(1000));
  expect(slider().value).toBe('200');
  expect(fixture.executed).toEqual([]);
});

it('asks for nothing when it ends where it began', async () => {
  render(form());
  fireEvent.pointerDown(slider());
  slide(300);
  slide(200);
  await letGo();
  expect(fixture.executed).toEqual([]);
});

it('does not move while a request is under way', () => {
  render(form({}, true));
  fireEvent.pointerDown(slider());
  slide(300);
  expect(slider().value).toBe('200');
  expect(slider().getAttribute('aria-disabled')).toBe('true');
});

it('shows what is true again when it was refused', async () => {
  render(form());
  fireEvent.pointerDown(slider());
  slide(400);
  await letGo();
  // The fixture's command changes nothing, as a refused one.
  expect(slider().value).toBe('200');
  expect(screen.getByRole<HTMLInputElement>('textbox').value).toBe('0.2');
});

it('promises no more than there is', async () => {
  jest.useRealTimers();
  const [device] = POOL.devices;
  const free_milli = 395;
  fixture.server.answer = aPool({ devices: [{ ...device, free_milli }] });
  await act(() => fixture.model.refresh());
  render(form());
  screen.getByText('Can grow to 0.59.');
  expect(slider().getAttribute('aria-valuetext')).toBe(
    '0.2 of a GPU; can grow to 0.59'
  );
});

it.each([
  [200, 5],
  [799, 0],
  [385, 4]
])(
  'offers nothing where %d are held and less than a step is free (%d)',
  async (milli, free_milli) => {
    jest.useRealTimers();
    const [device] = POOL.devices;
    fixture.server.answer = aPool({ devices: [{ ...device, free_milli }] });
    await act(() => fixture.model.refresh());
    render(form({ share: { milli, mib: 1587, count: 1 } }));
    screen.getByText('Cannot grow now.');
    expect(slider().getAttribute('aria-valuetext')).toBe(
      `${milli / 1000} of a GPU`
    );
  }
);

it('promises nothing while the Jupyter server does not answer', async () => {
  jest.useRealTimers();
  fixture.server.down = new Error('Failed to fetch');
  await act(() => fixture.model.refresh());
  render(form());
  screen.getByText('What is free is not known.');
  expect(slider().getAttribute('aria-valuetext')).toBe('0.2 of a GPU');
});

it('goes as far as a device where nobody knows what is free', () => {
  render(form({ device: 'elsewhere/0', devices: ['elsewhere/0'] }));
  screen.getByText('What is free is not known.');
  fireEvent.pointerDown(slider());
  slide(1000);
  expect(slider().value).toBe('1000');
});
