import { dataPaths } from '../config.ts';
import { readCatalogue } from '../lake/catalogue/read-catalogue.ts';
import { assertLake } from './data-folder.ts';
import { resolveConfig, verb } from './command.ts';
import { positive, text } from './words.ts';

/** `tributary catalogue APP`: what the custom events of an app have in their parameters, as far as they are sealed. */
export const catalogueCommand = verb({
  name: 'catalogue',
  summary: 'show the custom events of an app: volume by day, and the parameters of one with types, values and examples',
  isList: true,
  words: { APP: positive('the id of an app: a line for each of its custom events, then its notices') },
  options: {
    event: text('a custom event: a line for it, then one for each of its parameters, then its notices', 'NAME'),
  },
  examples: ['catalogue 7', 'catalogue 7 --event purchase'],
  async run({ APP: idApp, event: name, data }, { environment, answer, note }) {
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
    assertLake(config);
    const { customEvents, more, notices, missingFiles, version } = await readCatalogue(
      dataPaths(config.dataDir).lake,
      idApp,
      name,
    );
    for (const { parameters, ...event } of customEvents) {
      answer(event);
      if (name !== undefined) for (const parameter of parameters) answer({ parameter });
    }
    for (const notice of notices) answer({ notice });
    if (more.names > 0) note(`${more.names} more custom events, with ${more.events} events, are not listed`);
    if (missingFiles > 0) note(`${missingFiles} sealed files are not in the catalogue yet`);
    if (version === undefined) note('there is no catalogue yet: a running service makes it of sealed files');
  },
});
