import { useEffect, useId, useRef, useState } from 'react';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { resizeLimit } from '../figures/room';
import { holds } from '../figures/session';
import { formatMilli } from '../figures/share';
import { poolNow } from '../model/known';
import { checkShare } from '../text/words';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import {
  argumentsOf,
  checkCount,
  moreOf,
  MoreOptions,
  unshownOf,
  type IMore
} from './MoreOptions';
import { hintText, ShareSlider } from './ShareSlider';
import type { IContext } from './context';

interface IProps {
  kernel: GpuPool.IKernel;
  pending: boolean;
  asked?: string;
  context: IContext;
}

/**
 * The share input and the one main button of a kernel.
 *
 * The button stays the same element when Attach becomes Detach, and is never
 * `disabled`, so keyboard focus survives each refresh and each press.
 */
export function KernelForm(props: IProps): JSX.Element {
  const { kernel, pending, asked, context } = props;
  const { commands, model, trans } = context;
  const [draft, setDraft] = useState<string | null>(null);
  // Null: as the notebook notes it.
  const [changedMore, setMore] = useState<IMore | null>(null);
  // Where the slider stands while it is moved, milli-GPU.
  const [slid, setSlid] = useState<number | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const hint = useId();

  const holding = holds(kernel);
  const queued = kernel.state === 'queued';
  const current =
    holding && kernel.share ? formatMilli(kernel.share.milli) : null;
  // What the notebook notes is asked for again, whole, unless one says else.
  const noted =
    holding || queued ? null : (context.terms?.(kernel.kernel_id) ?? null);
  const more = changedMore ?? moreOf(noted);
  // What waits may be another request than the one that was typed here.
  const waits = queued ? (asked ?? kernel.queue?.asked.share) : null;
  const value =
    waits ??
    (slid === null ? null : formatMilli(slid)) ??
    draft ??
    current ??
    noted?.share ??
    model.preferences.defaultShare;
  const free = !holding && !queued;
  const problem =
    (draft === null || queued ? null : checkShare(draft, trans)) ??
    (free ? checkCount(more.count, trans) : null);
  const changed = holding && draft !== null && draft.trim() !== current;

  // What was typed has been granted, or is gone: show what is true again.
  useEffect(() => {
    setDraft(null);
    setMore(null);
    setSlid(null);
  }, [holding, current]);

  // What is asked back for others does not grow, and shrinks only by going back.
  const sliding = holding && !kernel.notice ? kernel.share : null;
  const limit = resizeLimit(kernel, poolNow(model.state));

  const run = async (
    command: string,
    args: ReadonlyPartialJSONObject = {}
  ): Promise<void> => {
    if (!pending) {
      await commands.execute(command, {
        kernelId: kernel.kernel_id,
        quiet: true,
        ...args
      });
    }
  };
  const slideTo = async (milli: number) => {
    if (milli !== kernel.share?.milli) {
      await run(CommandIDs.resize, { share: formatMilli(milli) });
    }
    // Granted or refused, what is true now is shown again.
    setSlid(null);
  };
  const runWithShare = (command: string) => {
    if (checkShare(value, trans) !== null) {
      setDraft(value);
      input.current?.focus();
      return;
    }
    if (!free) {
      void run(command, { share: value.trim() });
    } else if (checkCount(more.count, trans) === null) {
      // What is shown is asked for; what the notebook notes beside it stays.
      const asNoted = noted !== null && draft === null && changedMore === null;
      void run(
        command,
        asNoted
          ? {}
          : {
              ...unshownOf(noted),
              share: value.trim(),
              ...argumentsOf(more)
            }
      );
    }
  };

  return (
    <form
      className="jp-GpuPool-form"
      data-holding={holding}
      onSubmit={event => {
        event.preventDefault();
        if (changed) {
          runWithShare(CommandIDs.resize);
        } else if (!holding && !queued) {
          runWithShare(CommandIDs.attach);
        }
      }}
    >
      {sliding ? (
        <ShareSlider
          kernel={kernel}
          value={slid ?? sliding.milli}
          limit={limit}
          pending={pending}
          onSlide={milli => {
            setDraft(null);
            setSlid(milli);
          }}
          onCommit={milli => void slideTo(milli)}
          context={context}
        />
      ) : null}
      <input
        ref={input}
        type="text"
        className="jp-mod-styled jp-GpuPool-input"
        aria-label={trans.__('GPU share for %1', kernel.label)}
        aria-invalid={problem !== null}
        aria-describedby={hint}
        autoComplete="off"
        spellCheck={false}
        readOnly={queued}
        value={value}
        onChange={event => {
          setSlid(null);
          setDraft(event.target.value);
        }}
        onKeyDown={event => {
          if (event.key === 'Escape') {
            setDraft(null);
          }
        }}
      />
      {changed ? (
        <Button
          tone="accept"
          aria-label={trans.__('Resize the share of %1', kernel.label)}
          aria-disabled={pending || problem !== null}
          onClick={() => runWithShare(CommandIDs.resize)}
        >
          {trans.__('Resize')}
        </Button>
      ) : null}
      <Button
        tone={holding || queued ? 'reject' : 'accept'}
        aria-disabled={pending}
        aria-label={mainLabel(kernel, trans)}
        data-focus-home=""
        onClick={() => {
          if (holding) {
            void run(CommandIDs.detach);
          } else if (queued) {
            void run(CommandIDs.cancelQueue);
          } else {
            runWithShare(CommandIDs.attach);
          }
        }}
      >
        {holding
          ? trans.__('Detach')
          : queued
            ? trans.__('Cancel')
            : trans.__('Attach')}
      </Button>
      {sliding ? (
        <span className="jp-GpuPool-sliderHint" aria-hidden="true">
          {hintText(kernel, limit, context)}
        </span>
      ) : null}
      {free ? (
        <MoreOptions
          kernel={kernel}
          more={more}
          noted={noted}
          onChange={setMore}
          context={context}
        />
      ) : null}
      <span
        id={hint}
        className="jp-GpuPool-hint"
        data-kind={problem === null ? 'help' : 'error'}
        role={problem === null ? undefined : 'alert'}
      >
        {problem ?? trans.__('0.2, 20%, 2560MiB or 2.5GiB')}
      </span>
    </form>
  );
}

function mainLabel(kernel: GpuPool.IKernel, trans: IContext['trans']): string {
  if (holds(kernel)) {
    return trans.__('Detach the GPU from %1', kernel.label);
  }
  return kernel.state === 'queued'
    ? trans.__('Cancel the request of %1', kernel.label)
    : trans.__('Attach a GPU to %1', kernel.label);
}
