/**
 * Tells the webhooks of accounts what the catalogue of parameters has noticed in their apps.
 *
 * In: the notices of the lake, which whoever seals writes (lake/catalogue/notices-file.ts). Out: one message for each
 * webhook that was there when a notice was found, at least once, under one id, signed, tried again with growing pauses for
 * a week. A webhook that does not answer holds up its own account alone.
 * Crash: who was told is written down after the message was taken, so a message may come twice; what nobody was told of
 * is found by the next start.
 */
import type { AccessReader } from '../../access/access.ts';
import { type Notice, cataloguePaths, readNotices } from '../../lake/catalogue/catalogue-files.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import { describeError } from '../../runtime/errors.ts';
import { findStamp } from '../../runtime/files/file-checks.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import { type NoticeTellerDependencies, createNoticeTeller } from './notice-teller.ts';
import { type TellerOptions, defaultTellerOptions } from './teller.ts';

export interface NoticeNotifierDependencies extends NoticeTellerDependencies {
  readonly lakeDir: string;
  readonly access: AccessReader;
}

export interface NoticeNotifierOptions extends TellerOptions {
  /** How often the notices are looked at, milliseconds: a look is one `stat` while nothing is new or due. */
  readonly everyMs: number;
}

export const defaultNoticeNotifierOptions: NoticeNotifierOptions = { ...defaultTellerOptions, everyMs: 5000 };

/** Starts to tell, until it is stopped. */
export function startNoticeNotifier(
  dependencies: NoticeNotifierDependencies,
  options: NoticeNotifierOptions = defaultNoticeNotifierOptions,
): Stoppable {
  const { lakeDir, access, clock, logger } = dependencies;
  const aborter = new AbortController();
  const teller = createNoticeTeller(dependencies, options, aborter.signal);
  const longestMs = Math.max(...options.pausesMs);
  const { notices: found, keyNotices } = cataloguePaths(lakeDir);
  let seen: string | undefined;
  let notices: readonly Notice[] = [];
  /** When each account with notices is to be looked at again, Unix milliseconds. */
  const dueMs = new Map<number, number>();
  const running = new Map<number, Promise<void>>();

  const accountOf = ({ idApp }: Notice): number | undefined => access.current().findApp(idApp)?.idAccount;

  async function run(idAccount: number): Promise<void> {
    const before = seen;
    const nextMs = await teller
      .tell(idAccount, () => notices.filter((notice) => accountOf(notice) === idAccount))
      .catch((error: unknown) => {
        logger.error({ idAccount, error: describeError(error) }, 'notices were not sent to webhooks, will retry');
        return clock.nowMs() + longestMs;
      });
    // What came meanwhile may not have been among those that it looked at.
    dueMs.set(idAccount, seen === before ? nextMs : 0);
  }

  async function readAgain(stamp: string | undefined): Promise<void> {
    notices = await readNotices(lakeDir);
    // An app that is not known yet is looked for again.
    if (!access.mayLackApps()) seen = stamp;
    for (const notice of notices) {
      const idAccount = accountOf(notice);
      if (idAccount !== undefined) dueMs.set(idAccount, 0);
    }
  }

  function tellWhoIsDue(): void {
    const nowMs = clock.nowMs();
    for (const [idAccount, atMs] of dueMs) {
      if (running.has(idAccount) || (atMs > nowMs && (atMs === Infinity || atMs - nowMs <= longestMs))) continue;
      const telling = run(idAccount).finally(() => running.delete(idAccount));
      running.set(idAccount, telling);
    }
  }

  function look(): Promise<void> | void {
    const stamp = `${findStamp(found)} ${findStamp(keyNotices)}`;
    if (stamp !== seen) return readAgain(stamp).then(tellWhoIsDue);
    tellWhoIsDue();
  }

  const loop = startPollLoop(look, {
    everyMs: options.everyMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'notices cannot be read now, will retry'),
  });
  return {
    async stop() {
      aborter.abort();
      await loop.stop();
      await Promise.all(running.values());
    },
  };
}
