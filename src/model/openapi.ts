/** JSON as OpenAPI has it. */
export type OpenApiObject = { readonly [name: string]: unknown };

/** One area's share of the API reference. Paths and component names of the areas must not collide. */
export interface OpenApiPart {
  readonly tag: { readonly name: string; readonly description: string };
  /** Where this area is served; it goes to each of its paths. Undefined: where the reference itself is. */
  readonly serverUrl: string | undefined;
  readonly paths: Readonly<Record<string, OpenApiObject>>;
  readonly schemas: Readonly<Record<string, OpenApiObject>>;
  readonly securitySchemes: Readonly<Record<string, OpenApiObject>>;
}

function merge<T>(maps: readonly Readonly<Record<string, T>>[]): Record<string, T> {
  const merged: Record<string, T> = {};
  for (const map of maps) {
    for (const [name, value] of Object.entries(map)) {
      if (Object.hasOwn(merged, name)) throw new Error(`two areas describe ${name}`);
      merged[name] = value;
    }
  }
  return merged;
}

/** Joins the areas' parts into one OpenAPI 3.1 document. Throws when two areas describe the same thing. */
export function assembleOpenApi(version: string, parts: readonly OpenApiPart[]): OpenApiObject {
  const pathsOf = ({ paths, serverUrl, tag }: OpenApiPart): Record<string, OpenApiObject> =>
    Object.fromEntries(
      Object.entries(paths).map(([path, methods]) => [
        path,
        {
          ...(serverUrl === undefined ? {} : { servers: [{ url: serverUrl }] }),
          ...Object.fromEntries(Object.entries(methods).map(([verb, operation]) => [verb, { tags: [tag.name], ...(operation as OpenApiObject) }])),
        },
      ]),
    );
  return {
    openapi: '3.1.0',
    info: { title: 'tributary', version, description: 'Import of user and device events, and export of raw data.' },
    tags: parts.map((part) => part.tag),
    paths: merge(parts.map(pathsOf)),
    components: { schemas: merge(parts.map((part) => part.schemas)), securitySchemes: merge(parts.map((part) => part.securitySchemes)) },
  };
}
