import { targetArguments } from '../../destinations/target.ts';
import {
  type OpenApiPart,
  choice,
  count,
  flag,
  listOf,
  note,
  object,
  parameter,
  reference,
  text,
} from '../../runtime/http/openapi.ts';
import { destinationExamples } from './schedule-examples.ts';
import { method, notFoundResponse } from './openapi.ts';

const destination = object({
  idDestination: text,
  name: text,
  place: note(text, 'The place in one text.'),
  kind: choice(['s3', 'sftp']),
  'endpoint?': text,
  'region?': text,
  'bucket?': text,
  'prefix?': text,
  'pathStyle?': flag,
  'accessKeyId?': text,
  'host?': text,
  'port?': count,
  'user?': text,
  'folder?': text,
  'hostKey?': text,
  timestampCreated: text,
});

const own = Object.entries(targetArguments).flatMap(([kind, names]) =>
  Object.entries(names).map(([name, meaning]) =>
    parameter(name.endsWith('?') ? name : `${name}?`, text, `${meaning} Only for ${kind}.`),
  ),
);

export function describeDestinationApi(): OpenApiPart {
  const id = parameter('idDestination', text);
  const secret = parameter('secret', text, 'Secret access key, password, or private key. It is never returned.');
  const answer = reference('Destination');
  const damaged = listOf(text, 'Ids of destinations with damaged records.');
  const create = method(
    'Create a destination of the account, to which exports are delivered.',
    [parameter('name', text), parameter('kind', choice(['s3', 'sftp'])), ...own, secret],
    answer,
  );
  const list = object({ destinations: listOf(answer), 'damaged?': damaged });
  return {
    area: 'export',
    paths: {
      '/api/destination/v1/create.json': { post: create },
      '/api/destination/v1/list.json': { get: method('List the destinations of the account.', [], list) },
      '/api/destination/v1/secret.json': {
        post: method('Replace the secret of a destination.', [id, secret], answer, notFoundResponse),
      },
      '/api/destination/v1/delete.json': {
        post: method('Delete a destination.', [id], object({ idDestination: text }), notFoundResponse),
      },
    },
    examples: destinationExamples,
    components: { schemas: { Destination: destination }, securitySchemes: {} },
  };
}
