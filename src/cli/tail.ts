import { listApps } from '../access/listing.ts';
import { dataPaths } from '../config.ts';
import { parseMessage, type LiveMessage } from '../live/live-message.ts';
import { AppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { rightsTodo } from '../stream/broker-errors.ts';
import { createLiveChannel, type LiveChannel } from '../stream/live-channel.ts';
import { resolveConfig, verb, type CommandContext } from './command.ts';
import { showEvent, showLeftOut, showRefusal, tailHead } from './tail-lines.ts';
import { positive } from './words.ts';

/** The service shows an app for a few seconds after it was asked to. */
const announceEveryMs = 2000;

/** Shows a message: lines of JSON for a program, or laid out for a person at a terminal so many columns wide. */
function showMessage(
  { events, refusals, eventsLeftOut, refusalsLeftOut }: LiveMessage,
  columns: number | undefined,
  { print, answer }: Pick<CommandContext, 'print' | 'answer'>,
): void {
  const hasLeftOut = eventsLeftOut + refusalsLeftOut > 0;
  if (columns === undefined) {
    // The lines are JSON already, byte for byte as they came.
    for (const line of events) print(`{"event":${line}}`);
    for (const line of refusals) print(`{"refusal":${line}}`);
    if (hasLeftOut) answer({ leftOut: { events: eventsLeftOut, refusals: refusalsLeftOut } });
    return;
  }
  for (const line of events) print(showEvent(line, columns));
  for (const line of refusals) print(showRefusal(line, columns));
  if (hasLeftOut) print(showLeftOut(eventsLeftOut, refusalsLeftOut));
}

/** Errors: `broker_away`, `broker_refused`. */
async function assertReady(channel: LiveChannel): Promise<void> {
  const hindrance = await channel.findHindrance();
  if (hindrance === 'away') throw new AppError('broker_away', 'the broker of the service does not answer');
  if (hindrance === 'denied')
    throw new AppError('broker_refused', 'the broker denies what is shown live', { hint: rightsTodo });
}

/**
 * `tributary tail`: the events and refusals of an app as they arrive, a line for each, until it is interrupted, or nobody
 * reads them any more.
 */
export const tailCommand = verb({
  name: 'tail',
  summary: 'show the events and refusals of an app as they arrive',
  details: [
    'A sample: up to 20 events a second of each import process; what is left out is counted.',
    'On a terminal a line for each; in a pipe, or with --json, objects with event, refusal or leftOut.',
  ],
  words: { APP: positive('the id of an app') },
  examples: ['tail 7', 'tail 7 --json'],
  async run({ APP: idApp, data, json }, context) {
    const { environment, screen, print, note, stop, unread } = context;
    const columns = json ? undefined : screen?.columns;
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
    const running = readServiceStates(dataPaths(config.dataDir).run).find(({ natsUrl }) => natsUrl !== undefined);
    const url = running?.natsUrl ?? config.natsUrl;
    if (url === undefined)
      throw new AppError('broker_away', 'no service runs on this data folder', { hint: 'Start it first.' });
    if (!listApps(dataPaths(config.dataDir)).some((app) => app.idApp === String(idApp)))
      note(`there is no app ${idApp} here: 'tributary app list' names those that there are`);
    const streamName = running?.streamName ?? config.streamName;
    const logger = createLogger(config.logLevel, { role: 'tail' });
    const channel = createLiveChannel({ url, name: 'tributary tail', logger, streamName });
    channel.listen(idApp, (text) => {
      const message = parseMessage(text);
      if (message !== undefined) showMessage(message, columns, context);
    });
    const timer = setInterval(() => channel.announce([idApp]), announceEveryMs);
    try {
      await assertReady(channel);
      channel.announce([idApp]);
      if (columns !== undefined) {
        note(`What arrives of app ${idApp}; Ctrl-C ends it.`);
        print(tailHead(columns));
      }
      const over = AbortSignal.any(unread === undefined ? [stop] : [stop, unread]);
      if (!over.aborted) await new Promise((resolve) => over.addEventListener('abort', resolve, { once: true }));
    } finally {
      clearInterval(timer);
      await channel.close();
    }
  },
});
