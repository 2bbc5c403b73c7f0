/** What the page reads of an OpenAPI 3.1 document. */

export type Schema = { readonly [keyword: string]: unknown };

export interface Media {
  readonly schema: Schema;
  readonly example?: unknown;
}

export interface Body {
  readonly description?: string;
  readonly content?: Readonly<Record<string, Media>>;
}

export interface Parameter extends Media {
  readonly name: string;
  readonly in: 'query' | 'header' | 'path';
  readonly required?: boolean;
  readonly description?: string;
}

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly security: readonly Readonly<Record<string, unknown>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Body;
  readonly responses: Readonly<Record<string, Body>>;
}

export interface Server {
  readonly url: string;
}

export interface OpenApiDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation | readonly Server[]>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly securitySchemes: Readonly<Record<string, { readonly description: string }>>;
  };
}

/** An operation, and where it is called. */
export interface Call extends Operation {
  readonly verb: string;
  readonly path: string;
  readonly server: string;
}

/** The operations in their order; of several verbs of a path the one with the plain name, which takes what the others take. */
export function listCalls({ paths }: OpenApiDocument): readonly Call[] {
  return Object.entries(paths).flatMap(([path, { servers, ...verbs }]) => {
    const [server] = servers as readonly Server[];
    const operations = Object.entries(verbs) as [string, Operation][];
    return operations
      .filter(([, { operationId }]) => !/By(?:Get|Head)$/.test(operationId))
      .map(([verb, operation]) => ({ ...operation, verb, path, server: server?.url ?? '' }));
  });
}
