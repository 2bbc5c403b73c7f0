import { dataPaths } from '../config.ts';
import { readCatalogue } from '../lake/catalogue/read-catalogue.ts';
import { assertLake } from './data-folder.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary catalogue APP [--event NAME] [--data DIR]';

/** `tributary catalogue APP`: what the custom events of an app have in their parameters, as far as they are sealed. */
export const catalogueCommand: Command = {
  name: 'catalogue',
  usage,
  summary: 'show the custom events of an app: volume by day, and the parameters of one with types, values and examples',
  details: [
    'APP       the id of an app: a line for each of its custom events, then its notices',
    '--event   the name of a custom event: a line for it, then one for each of its parameters, then its notices',
  ],
  async run(args, { environment, answer, note }) {
    const { values, positionals } = parseWords(args, ['APP'], { event: { type: 'string' } }, usage);
    const idApp = parseId(positionals[0], 'APP');
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    assertLake(config);
    const { customEvents, more, notices, missingFiles, version } = await readCatalogue(
      dataPaths(config.dataDir).lake,
      idApp,
      values.event,
    );
    for (const { parameters, ...event } of customEvents) {
      answer(event);
      if (values.event !== undefined) for (const parameter of parameters) answer({ parameter });
    }
    for (const notice of notices) answer({ notice });
    if (more.names > 0) note(`${more.names} more custom events, with ${more.events} events, are not listed`);
    if (missingFiles > 0) note(`${missingFiles} sealed files are not in the catalogue yet`);
    if (version === undefined) note('there is no catalogue yet: a running service makes it of sealed files');
    return 0;
  },
};
