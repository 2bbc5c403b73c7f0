import { createRefusalKeeper, type RefusalKeeper } from '../ingest/refusal-keeper.ts';
import type { SenderView } from '../ingest/sender-routes.ts';
import { createLiveHub } from '../live/live-hub.ts';
import { createLiveSource, type LiveSource } from '../live/live-source.ts';
import { createRefusalWriter, sweepRefusals } from '../refusals/refusal-files.ts';
import type { RefusalRecord } from '../refusals/refusal-record.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import { areSameFolders } from '../runtime/files/folder-id.ts';
import { openLiveChannel, openRefusalReader, refusalFolder } from './live-parts.ts';
import type { Parts } from './stage-parts.ts';

/** What ingest keeps and shows of an app's requests beside its events. */
export interface SenderParts {
  readonly refusals: RefusalKeeper;
  readonly live: LiveSource;
  readonly senderView: SenderView;
}

/** Between sweeps of what has lapsed, milliseconds: each lists the folder of every app that has refusals. */
const sweepEveryMs = 300_000;

/** Opens what an ingest process keeps of refusals and shows live. Neither ever keeps it from its events. */
export function openSenderParts(parts: Parts, isDiskLow: () => boolean): SenderParts {
  const { config, clock, logger, closers, folders = {} } = parts;
  const kept = refusalFolder(config);
  const { bodies } = kept;
  const channel = openLiveChannel(parts, 'ingest');
  if (channel === undefined) throw new Error('the supervisor names the broker to its children');
  const live = createLiveSource(channel);
  closers.add('live', () => live.stop());
  const writer = createRefusalWriter(kept.folder, bodies);

  async function write(idApp: number, records: readonly RefusalRecord[]): Promise<void> {
    live.refused(idApp, records);
    // Another service's folder may be there by now.
    if (kept.ageMs > 0 && !isDiskLow() && areSameFolders(folders)) await writer.append(idApp, records, clock.nowMs());
  }
  const refusals = createRefusalKeeper({ clock, logger, bodies, write });
  closers.add('refusals', () => refusals.stop());

  const sweep = startPollLoop(
    async () => {
      if (areSameFolders(folders)) await sweepRefusals(kept, clock.nowMs());
    },
    {
      everyMs: sweepEveryMs,
      onError: (error) => logger.warn({ error: describeError(error) }, 'refusals that have lapsed cannot be removed'),
    },
  );
  closers.add('sweep of refusals', () => sweep.stop());
  return { refusals, live, senderView: { readRefusals: openRefusalReader(parts), hub: createLiveHub(channel) } };
}
