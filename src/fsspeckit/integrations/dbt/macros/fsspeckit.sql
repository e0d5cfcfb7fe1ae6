{#
  Write the rows of a model into a dataset of plain Parquet files.

  The rows become a table, the plugin merges or writes it with one commit, and the relation of the model is a view of the
  files of the dataset.
#}
{% materialization fsspeckit, adapter="duckdb" %}
  {%- set location = config.require('location') -%}
  {%- set plugin = config.get('plugin', default='fsspeckit') -%}
  {%- if config.get('key') is not none and config.get('mode') is not none -%}
    {{ exceptions.raise_compiler_error("a model has either 'key', which merges, or 'mode'. Remove one.") }}
  {%- endif -%}
  {%- set target_relation = this.incorporate(type='view') -%}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set rows_relation = make_intermediate_relation(this.incorporate(type='table'), suffix='__dbt_rows') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ drop_relation_if_exists(load_cached_relation(rows_relation)) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% call statement('main') -%}
    {{ create_table_as(False, rows_relation, compiled_code, 'sql') }}
  {%- endcall %}
  {# The plugin reads the table by a connection of its own, which sees what is committed. #}
  {{ adapter.commit() }}
  {% do adapter.store_relation(plugin, rows_relation, [], location, 'parquet', config) %}

  {{ drop_relation_if_exists(rows_relation) }}
  {% if existing_relation is not none and existing_relation.type != 'view' %}
    {{ drop_relation_if_exists(existing_relation) }}
  {% endif %}
  {% call statement('view') -%}
    create or replace view {{ target_relation }} as (
      select * from read_parquet('{{ location | replace("'", "''") }}/**/*.parquet',
        union_by_name = true, hive_partitioning = {{ config.get('partition_by') is not none }})
    )
  {%- endcall %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do persist_docs(target_relation, model) %}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
