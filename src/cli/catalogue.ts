import { dataPaths } from '../config.ts';
import { readCurrentCatalogue } from '../lake/catalogue/current-catalogue.ts';
import { assertLake } from './data-folder.ts';
import { resolveConfig, verb } from './command.ts';
import { day, toDay } from './export-request.ts';
import { positive, refuse, text } from './words.ts';

/** `tributary catalogue APP`: the custom events of an app, and what those that are sealed have in their parameters. */
export const catalogueCommand = verb({
  name: 'catalogue',
  summary: 'show the custom events of an app: volume by day, and the parameters of one with types, values and examples',
  isList: true,
  words: { APP: positive('the id of an app: a line for each of its custom events, then its notices') },
  options: {
    event: text('a custom event: a line for it, then one for each of its parameters, then its notices', 'NAME'),
    from: day('the first UTC day whose events are counted: YYYY-MM-DD, today or yesterday (all)'),
    to: day('the last one (today)'),
  },
  examples: ['catalogue 7', 'catalogue 7 --event purchase'],
  async run({ APP: idApp, event: name, from, to, data }, { environment, answer, note }) {
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
    assertLake(config);
    const nowMs = Date.now();
    if (from === undefined && to !== undefined) refuse('--to is given without --from');
    const dates =
      from === undefined ? undefined : { from: toDay(from, 'UTC', nowMs), to: toDay(to ?? 'today', 'UTC', nowMs) };
    const { customEvents, more, notices, missingFiles, version, isWhole, sealedUntil } = await readCurrentCatalogue(
      dataPaths(config.dataDir).lake,
      { idApp, customEventName: name, dates },
    );
    for (const { parameters, ...event } of customEvents) {
      answer(event);
      if (name !== undefined) for (const parameter of parameters) answer({ parameter });
    }
    for (const notice of notices) answer({ notice });
    if (more.names > 0) note(`${more.names} more custom events, with ${more.events} events, are not listed`);
    if (!isWhole) note('there are more events than were counted: the catalogue is being made');
    if (sealedUntil !== undefined) note(`parameters are as of ${sealedUntil}: later events are counted, not looked at`);
    if (missingFiles > 0) note(`${missingFiles} sealed files are not in the catalogue yet`);
    if (version === undefined) note('there is no catalogue yet: a running service makes it of sealed files');
  },
});
