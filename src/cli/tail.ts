import { dataPaths } from '../config.ts';
import { parseMessage } from '../live/live-message.ts';
import { AppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { rightsTodo } from '../stream/broker-errors.ts';
import { createLiveChannel, type LiveChannel } from '../stream/live-channel.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary tail APP [--data DIR]';
/** The service shows an app for a few seconds after it was asked to. */
const announceEveryMs = 2000;

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
export const tailCommand: Command = {
  name: 'tail',
  usage,
  summary: 'show the events and refusals of an app as they arrive',
  details: ['A sample: up to 20 events a second of each import process; what is left out is counted.'],
  async run(args, { environment, print, answer, stop, unread }) {
    const { values, positionals } = parseWords(args, ['APP'], {}, usage);
    const idApp = parseId(positionals[0], 'APP');
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const running = readServiceStates(dataPaths(config.dataDir).run).find(({ natsUrl }) => natsUrl !== undefined);
    const url = running?.natsUrl ?? config.natsUrl;
    if (url === undefined)
      throw new AppError('broker_away', 'no service runs on this data folder', { hint: 'Start it first.' });
    const streamName = running?.streamName ?? config.streamName;
    const logger = createLogger(config.logLevel, { role: 'tail' });
    const channel = createLiveChannel({ url, name: 'tributary tail', logger, streamName });
    channel.listen(idApp, (text) => {
      const message = parseMessage(text);
      if (message === undefined) return;
      // The lines are JSON already, byte for byte as they came.
      for (const line of message.events) print(`{"event":${line}}`);
      for (const line of message.refusals) print(`{"refusal":${line}}`);
      const { eventsLeftOut: events, refusalsLeftOut: refusals } = message;
      if (events + refusals > 0) answer({ leftOut: { events, refusals } });
    });
    const timer = setInterval(() => channel.announce([idApp]), announceEveryMs);
    try {
      await assertReady(channel);
      channel.announce([idApp]);
      const over = AbortSignal.any(unread === undefined ? [stop] : [stop, unread]);
      if (!over.aborted) await new Promise((resolve) => over.addEventListener('abort', resolve, { once: true }));
    } finally {
      clearInterval(timer);
      await channel.close();
    }
  },
};
